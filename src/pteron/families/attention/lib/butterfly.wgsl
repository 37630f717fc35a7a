// Four sums over LANES adjacent lanes of a subgroup: lane i receives sum i % 4.
override SUBGROUP: u32 = 32u; // lanes per subgroup
override LANES: u32 = 16u; // a power of two, from 4 to SUBGROUP

// At each of the first two steps, lanes exchange half of their sums. So 16 lanes need 5 shuffles instead of 16.
fn own_sum(values: vec4<f32>, lane: u32) -> f32 {
  let second = (lane & 2u) != 0u;
  let given = select(values.zw, values.xy, second);
  let pair = select(values.xy, values.zw, second) + vec2(swapped(given.x, 2u), swapped(given.y, 2u));
  let odd = (lane & 1u) != 0u;
  var sum = select(pair.x, pair.y, odd) + swapped(select(pair.y, pair.x, odd), 1u);
  for (var apart = 4u; apart < LANES; apart *= 2u) { sum += swapped(sum, apart); }
  return sum;
}

// The values of the four lanes of a quad, in order; `local` is an invocation's index in the workgroup.
fn of_all(value: f32, local: u32) -> vec4<f32> {
  let first = (local % SUBGROUP) & ~3u;
  return vec4(
    at_lane(value, first),
    at_lane(value, first + 1u),
    at_lane(value, first + 2u),
    at_lane(value, first + 3u),
  );
}

// The value of the lane whose index differs by `apart`, a power of two.
fn swapped(value: f32, apart: u32) -> f32 { return subgroupShuffleXor(value, apart); }
fn swapped_four(values: vec4<f32>, apart: u32) -> vec4<f32> { return subgroupShuffleXor(values, apart); }

fn at_lane(value: f32, lane: u32) -> f32 { return subgroupShuffle(value, lane); }
