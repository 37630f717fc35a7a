// Four sums over LANES neighbours in a subgroup, each left to every fourth lane: lane i gets the (i % 4)-th.
const SUBGROUP = 32u; // its width
const LANES = 16u; // a power of two, from 4 to that width

// Half the sums move to the other half of the lanes at each of the first two steps, so that five shuffles do
// for 16 lanes what would take sixteen.
fn own_sum(values: vec4<f32>, lane: u32) -> f32 {
  let second = (lane & 2u) != 0u;
  let pair =
    select(values.xy, values.zw, second) + subgroupShuffleXor(select(values.zw, values.xy, second), 2u);
  let odd = (lane & 1u) != 0u;
  var sum = select(pair.x, pair.y, odd) + subgroupShuffleXor(select(pair.y, pair.x, odd), 1u);
  for (var apart = 4u; apart < LANES; apart *= 2u) { sum += subgroupShuffleXor(sum, apart); }
  return sum;
}

// What the four lanes of a quad hold, in order; `local` is an invocation's index in the workgroup.
fn of_all(value: f32, local: u32) -> vec4<f32> {
  let first = (local % SUBGROUP) & ~3u;
  return vec4(
    subgroupShuffle(value, first),
    subgroupShuffle(value, first + 1u),
    subgroupShuffle(value, first + 2u),
    subgroupShuffle(value, first + 3u),
  );
}
