// What is added to the score of a query for a key: the mask's number, or -∞ where a mask of booleans is false; or the
// distance of the key from the query, times the slope of the head (ALiBi). Kernels declare `mask` and `slopes`.
import package::wgsl::lib::nan::{minus_infinity};
@if(slopes && places) import super::contexts::{keys_of};

alias M = f32;
override IS_BOOL: bool = false; // the mask is of booleans

// `index` is (batch, head, step, key).
fn bias(index: vec4<u32>) -> f32 {
  @if(slopes && places) return f32(slopes[index.y]) * (f32(index.w) - (f32(keys_of(index.x)) - 1.0));
  @elif(slopes) return f32(slopes[index.y]) * (f32(index.w) - (f32(params.start) + f32(index.z)));
  @elif(mask && IS_BOOL) return select(minus_infinity(), 0.0, mask[dot(index, params.mask_strides)] != M());
  @elif(mask) return f32(mask[dot(index, params.mask_strides)]);
  @else return 0.0;
}

// For four keys; `place` is (batch, head, step).
fn biases(place: vec3<u32>, keys: vec4<u32>) -> vec4<f32> {
  return vec4(
    bias(vec4(place, keys.x)),
    bias(vec4(place, keys.y)),
    bias(vec4(place, keys.z)),
    bias(vec4(place, keys.w)),
  );
}
