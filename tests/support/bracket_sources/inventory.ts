import { EventEmitter } from "node:events";

export interface Item {
  readonly sku: string;
  name: string;
  quantity: number;
  tags?: string[];
}

type Listener<T> = (value: T, at: Date) => void;

const LOW_WATER = 5;

function pick<T, K extends keyof T>(value: T, ...keys: K[]): Pick<T, K> {
  const out = {} as Pick<T, K>;
  for (const key of keys) {
    out[key] = value[key];
  }
  return out;
}

export class Inventory extends EventEmitter {
  private items: Map<string, Item> = new Map();
  private watchers: Listener<Item>[] = [];

  constructor(private readonly name: string, initial: Item[] = []) {
    super();
    initial.forEach((item) => this.items.set(item.sku, { ...item }));
  }

  add(sku: string, quantity = 1): Item {
    const found = this.items.get(sku);
    if (!found) {
      throw new Error(`no item "${sku}" in ${this.name} (of ${this.items.size})`);
    }
    found.quantity += quantity;
    this.emit("changed", pick(found, "sku", "quantity"));
    return found;
  }

  remove(sku: string, quantity = 1): boolean {
    const found = this.items.get(sku);
    if (found === undefined || found.quantity < quantity) return false;
    found.quantity -= quantity;
    if (found.quantity <= LOW_WATER) {
      this.watchers.forEach((tell) => tell(found, new Date()));
    } else {
      console.log("enough of %s: %d", found.name, found.quantity);
    }
    return true;
  }

  // Tags are compared without case (as users type them).
  withTag(tag: string): Item[] {
    const wanted = tag.trim().toLowerCase();
    return [...this.items.values()]
      .filter((item) => (item.tags ?? []).some((t) => t.toLowerCase() === wanted))
      .sort((a, b) => a.name.localeCompare(b.name));
  }

  totals(): Record<string, number> {
    const sums: Record<string, number> = {};
    for (const [, item] of this.items) {
      for (const tag of item.tags ?? ["untagged"]) {
        sums[tag] = (sums[tag] ?? 0) + item.quantity;
      }
    }
    return sums;
  }

  async load(read: (path: string) => Promise<string>, path = "./items.json"): Promise<number> {
    const rows = JSON.parse(await read(path)) as Item[];
    const before = this.items.size;
    rows.forEach((row, i) => this.items.set(row.sku || `row-${i}`, row));
    return this.items.size - before;
  }
}
