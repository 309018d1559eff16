// Which clock was open when, by the looks at the run.

export class Moments {
  constructor() {
    this.clear();
  }

  clear() {
    this.times = [];  // seconds since 1970
    this.clocks = [];
  }

  // Those from one on take the place of those that were there.
  take(told) {
    this.times = [...this.times.slice(0, told.from), ...told.times];
    this.clocks = [...this.clocks.slice(0, told.from), ...told.clocks];
  }

  // When a clock was closed, between two looks in proportion; null: nobody looked then.
  closing(clock) {
    const after = this.firstFrom(clock + 1);
    if (after === this.clocks.length) return null;
    if (this.clocks[after] === clock + 1) return this.times[after];
    if (after === 0) return null;
    const part = (clock + 1 - this.clocks[after - 1]) / (this.clocks[after] - this.clocks[after - 1]);
    return this.times[after - 1] + part * (this.times[after] - this.times[after - 1]);
  }

  // Index of the first look that saw this clock or a later one open.
  firstFrom(clock) {
    let low = 0;
    let high = this.clocks.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.clocks[middle] < clock) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
