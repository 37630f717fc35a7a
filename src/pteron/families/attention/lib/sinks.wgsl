//! extent sinks: heads
// A sink is a logit of a head that has no value: it only adds exp(sink) to the sum of the softmax.
alias S = f32;
override IS_SAFE: bool = false; // a query that sees no key has a result of zeros, not of NaNs

@group(0) @binding(10) var<storage, read> sinks: array<S>;

// The sum of a query's weights, exp(score - most), with that of its sink.
fn with_sink(total: f32, most: f32, head: u32) -> f32 {
  @if(sinks) return total + exp(f32(sinks[head]) - most);
  @elif(IS_SAFE) return select(total, 1.0, total == 0.0);
  @else return total;
}
