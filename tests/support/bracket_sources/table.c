#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N_BUCKETS 64

struct entry {
    char *key;
    long value;
    struct entry *next;
};

struct table {
    struct entry *buckets[N_BUCKETS];
    size_t n_entries;
};

static unsigned hash(const char *key) {
    unsigned h = 5381;
    while (*key) {
        h = (h << 5) + h + (unsigned char)*key++;
    }
    return h % N_BUCKETS;
}

static char *copy_of(const char *text) {
    size_t n = strlen(text) + 1;
    char *copy = malloc(n);
    if (copy == NULL) {
        fprintf(stderr, "out of memory (%zu bytes)\n", n);
        exit(1);
    }
    return memcpy(copy, text, n);
}

/* The place of a key: where its entry is, or where it would be linked in (at the end). */
static struct entry **place(struct table *t, const char *key) {
    struct entry **at = &t->buckets[hash(key)];
    while (*at != NULL && strcmp((*at)->key, key) != 0) {
        at = &(*at)->next;
    }
    return at;
}

long table_add(struct table *t, const char *key, long value) {
    struct entry **at = place(t, key);
    if (*at == NULL) {
        *at = calloc(1, sizeof(struct entry));
        (*at)->key = copy_of(key);
        t->n_entries++;
    }
    (*at)->value += value;
    return (*at)->value;
}

void table_free(struct table *t) {
    for (int i = 0; i < N_BUCKETS; i++) {
        struct entry *e = t->buckets[i];
        while (e) {
            struct entry *next = e->next;
            free(e->key);
            free(e);
            e = next;
        }
        t->buckets[i] = NULL;
    }
}

int main(int argc, char **argv) {
    struct table counts = {{0}, 0};
    char word[128];
    while (scanf("%127s", word) == 1) {
        if (word[0] == '(' || word[0] == '[') continue;
        table_add(&counts, word, 1);
    }
    for (int i = 1; i < argc; i++) {
        struct entry *e = *place(&counts, argv[i]);
        printf("%s: %ld\n", argv[i], e ? e->value : 0L);
    }
    table_free(&counts);
    return 0;
}
