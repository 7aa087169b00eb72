// Tensors as the C interface sees them: element types, reductions, and flat memory in place of odd layouts.
#pragma once

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>
#include <string>
#include <utility>

#include "ringccl.h"

namespace ringccl_torch {

// How elements of a torch type travel.
struct Elements {
  uint32_t dtype;  // the type on the wire
  uint64_t each;   // wire elements for one of torch's
  // What a reduction may do with them.
  enum class Sums { Native, Bool, Pairs, Widened, None } sums;
};

inline Elements elements_of(const at::Tensor& tensor) {
  using Sums = Elements::Sums;
  switch (tensor.scalar_type()) {
    case at::kChar: return {RINGCCL_I8, 1, Sums::Native};
    case at::kByte: return {RINGCCL_U8, 1, Sums::Native};
    case at::kInt: return {RINGCCL_I32, 1, Sums::Native};
    case at::kUInt32: return {RINGCCL_U32, 1, Sums::Native};
    case at::kLong: return {RINGCCL_I64, 1, Sums::Native};
    case at::kUInt64: return {RINGCCL_U64, 1, Sums::Native};
    case at::kHalf: return {RINGCCL_F16, 1, Sums::Native};
    case at::kFloat: return {RINGCCL_F32, 1, Sums::Native};
    case at::kDouble: return {RINGCCL_F64, 1, Sums::Native};
    case at::kBFloat16: return {RINGCCL_BF16, 1, Sums::Native};
    case at::kFloat8_e4m3fn: return {RINGCCL_F8E4M3, 1, Sums::Native};
    case at::kFloat8_e5m2: return {RINGCCL_F8E5M2, 1, Sums::Native};
    case at::kBool: return {RINGCCL_U8, 1, Sums::Bool};
    case at::kComplexHalf: return {RINGCCL_F16, 2, Sums::Pairs};
    case at::kComplexFloat: return {RINGCCL_F32, 2, Sums::Pairs};
    case at::kComplexDouble: return {RINGCCL_F64, 2, Sums::Pairs};
    case at::kShort:
    case at::kUInt16: return {RINGCCL_U8, 2, Sums::Widened};
    // Everything else can be copied, whatever it means.
    default: return {RINGCCL_U8, static_cast<uint64_t>(tensor.element_size()), Sums::None};
  }
}

inline void check_tensor(const at::Tensor& tensor, const char* call) {
  TORCH_CHECK(tensor.defined(), "ringccl: ", call, ": a tensor is undefined");
  TORCH_CHECK(tensor.device().is_cpu(), "ringccl: ", call, ": the tensor is on ", tensor.device(),
              "; this backend serves tensors in the memory of the CPU: move it there first");
  TORCH_CHECK(tensor.layout() == at::kStrided, "ringccl: ", call, ": the tensor's layout is ", tensor.layout(),
              "; only all_reduce takes sparse tensors, all others strided ones");
}

// Whether the tensor's memory is its elements in order.
inline bool is_flat(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

// The tensor's elements in order: its own memory, or a copy.
inline at::Tensor flat_input(const at::Tensor& tensor) {
  return is_flat(tensor) ? tensor : tensor.resolve_conj().resolve_neg().contiguous();
}

// Memory for the tensor's elements in order: its own, or other that must be copied back.
inline at::Tensor flat_output(const at::Tensor& tensor) {
  if (is_flat(tensor)) return tensor;
  return at::empty(tensor.sizes(), tensor.options().memory_format(c10::MemoryFormat::Contiguous));
}

// A reduction on the wire; the factor lives in it.
struct Reducing {
  uint32_t code = RINGCCL_SUM;
  at::Tensor factor;  // one element of the wire type
};

inline const char* reduction_name(c10d::ReduceOp::RedOpType op) {
  static const char* const names[] = {"SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
  return op < 9 ? names[op] : "UNUSED";
}

[[noreturn]] inline void refuse_reduction(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op, const char* call,
                                          const char* have) {
  TORCH_CHECK(false, "ringccl: ", call, ": ", tensor.scalar_type(), " tensors have no reduction ",
              reduction_name(op), "; they have ", have);
}

// The type that a reduction computes in, where it is not the tensor's own.
inline bool needs_widening(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kShort || tensor.scalar_type() == at::kUInt16;
}

inline uint32_t code_of(c10d::ReduceOp::RedOpType op) {
  using Op = c10d::ReduceOp;
  switch (op) {
    case Op::SUM: return RINGCCL_SUM;
    case Op::AVG: return RINGCCL_AVG;
    case Op::PRODUCT: return RINGCCL_PROD;
    case Op::MIN: return RINGCCL_MIN;
    case Op::MAX: return RINGCCL_MAX;
    case Op::BAND: return RINGCCL_BIT_AND;
    case Op::BOR: return RINGCCL_BIT_OR;
    case Op::BXOR: return RINGCCL_BIT_XOR;
    case Op::PREMUL_SUM: return RINGCCL_PREMUL_SUM;
    default: TORCH_CHECK(false, "ringccl: ", int(op), " is no reduction");
  }
}

// Booleans are bytes that are 0 or 1: logical or is the maximum, logical and the minimum.
inline uint32_t bool_code(const at::Tensor& tensor, c10d::ReduceOp::RedOpType op, const char* call) {
  using Op = c10d::ReduceOp;
  switch (op) {
    case Op::SUM:
    case Op::MAX:
    case Op::BOR: return RINGCCL_MAX;
    case Op::PRODUCT:
    case Op::MIN:
    case Op::BAND: return RINGCCL_MIN;
    case Op::BXOR: return RINGCCL_BIT_XOR;
    default: refuse_reduction(tensor, op, call, "SUM and BOR (or), PRODUCT and BAND (and), MIN, MAX, BXOR");
  }
}

inline at::Tensor factor_of(const at::Tensor& tensor, const c10d::ReduceOp& op, const char* call) {
  auto* supplement = dynamic_cast<c10d::PreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(supplement, "ringccl: ", call, ": PREMUL_SUM without a factor");
  auto type = c10::toRealValueType(tensor.scalar_type());
  if (!supplement->tensor_factor.defined()) {
    return at::scalar_tensor(supplement->double_factor, at::TensorOptions().dtype(at::kDouble)).to(type);
  }
  TORCH_CHECK(!supplement->tensor_factor.is_complex(), "ringccl: ", call, ": the factor of PREMUL_SUM must be real");
  return supplement->tensor_factor.detach().to(at::kCPU, type).contiguous().clone();
}

// What `op` is for elements of `tensor`, which was widened before if it had to be.
inline Reducing reduction_of(const at::Tensor& tensor, const c10d::ReduceOp& op, const char* call) {
  using Op = c10d::ReduceOp;
  using Sums = Elements::Sums;
  Op::RedOpType type = op.op_;
  Reducing reducing;
  switch (elements_of(tensor).sums) {
    case Sums::Bool: reducing.code = bool_code(tensor, type, call); return reducing;
    case Sums::Pairs:
      if (type != Op::SUM && type != Op::AVG && type != Op::PREMUL_SUM) {
        refuse_reduction(tensor, type, call, "SUM, AVG and PREMUL_SUM");
      }
      break;
    case Sums::Native: break;
    default: refuse_reduction(tensor, type, call, "none: they can only be copied");
  }
  bool is_bitwise = type == Op::BAND || type == Op::BOR || type == Op::BXOR;
  if (is_bitwise && !c10::isIntegralType(tensor.scalar_type(), false)) {
    refuse_reduction(tensor, type, call, "all but the bitwise ones");
  }
  reducing.code = code_of(type);
  if (type == Op::PREMUL_SUM) reducing.factor = factor_of(tensor, op, call);
  return reducing;
}

}  // namespace ringccl_torch
