package example.ledger;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Predicate;

public final class Ledger {
    public record Entry(String account, long cents, String note) {
        public Entry {
            if (account == null || account.isBlank()) {
                throw new IllegalArgumentException("an entry needs an account");
            }
        }
    }

    private final List<Entry> entries = new ArrayList<>();
    private final Map<String, Long> limits = new HashMap<>();
    private int[][] grid = new int[12][31];

    public Ledger limit(String account, long cents) {
        limits.put(account, Math.abs(cents));
        return this;
    }

    public synchronized boolean book(Entry entry) {
        long limit = limits.getOrDefault(entry.account(), Long.MAX_VALUE);
        if (Math.abs(balance(entry.account()) + entry.cents()) > limit) {
            System.err.printf("over the limit of %s: %d%n", entry.account(), limit);
            return false;
        }
        entries.add(entry);
        return true;
    }

    public long balance(String account) {
        return entries.stream()
            .filter(e -> e.account().equals(account))
            .mapToLong(Entry::cents)
            .sum();
    }

    /** Counts by day (from 1) and month (from 1). */
    public void count(int month, int day) {
        grid[month - 1][day - 1]++;
    }

    public int[] busiest() {
        int[] best = {0, 0};
        for (int m = 0; m < grid.length; m++) {
            for (int d = 0; d < grid[m].length; d++) {
                if (grid[m][d] > grid[best[0]][best[1]]) {
                    best = new int[] {m, d};
                }
            }
        }
        return new int[] {best[0] + 1, best[1] + 1};
    }

    public List<Entry> find(Predicate<? super Entry> wanted) {
        List<Entry> found = new ArrayList<>();
        for (Entry entry : entries) {
            if (wanted.test(entry)) {
                found.add(entry);
            }
        }
        return found;
    }

    public static void main(String[] args) {
        Ledger ledger = new Ledger().limit("cash", 10_00);
        ledger.book(new Entry("cash", 5_00, "coffee (large)"));
        System.out.println(ledger.find(e -> e.note().startsWith("coffee")).size());
    }
}
