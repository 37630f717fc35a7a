//! extent sinks: heads
// A sink is a logit of a head that has no value: it only adds exp(sink) to the sum of the softmax.
alias S = f32;
@group(0) @binding(10) var<storage, read> sinks: array<S>;

// The sum of a query's weights, exp(score - most), with that of its sink.
fn with_sink(total: f32, most: f32, head: u32) -> f32 { return total; }
