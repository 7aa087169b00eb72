// Jobs: what each collective of torch is for the library, with copies where torch has many tensors and the library one
// buffer.
#pragma once

#include "work.hpp"

namespace ringccl_torch {

using Tensors = std::vector<at::Tensor>;

inline ringccl_op op_of(ringccl_kind kind, uint32_t dtype, const void* send, void* recv, uint64_t count,
                        int peer = 0) {
  ringccl_op op = {};
  op.kind = kind;
  op.dtype = dtype;
  op.send = send;
  op.recv = recv;
  op.count = count;
  op.peer = peer;
  return op;
}

inline uint64_t count_of(const at::Tensor& tensor) {
  return static_cast<uint64_t>(tensor.numel()) * elements_of(tensor).each;
}

// One call of a process group, on its way to a job.
struct Maker {
  const char* call;
  int rank, size;
  Job job;

  Maker(const char* call, int rank, int size) : call(call), rank(rank), size(size) {}

  void same_type(const at::Tensor& one, const at::Tensor& other) {
    TORCH_CHECK(one.scalar_type() == other.scalar_type(), "ringccl: ", call, ": tensors of ", one.scalar_type(), " and ",
                other.scalar_type(), "; they must be of one type");
  }

  // The tensor's elements, in memory that the job keeps.
  at::Tensor input(const at::Tensor& tensor) {
    check_tensor(tensor, call);
    auto flat = flat_input(tensor);
    job.keep.push_back(flat);
    return flat;
  }

  // Memory whose elements are the tensor's when the job is over.
  at::Tensor output(const at::Tensor& tensor) {
    check_tensor(tensor, call);
    auto flat = flat_output(tensor);
    job.keep.push_back(flat);
    job.outputs.push_back(tensor);
    if (!flat.is_same(tensor)) {
      job.after.push_back([tensor, flat] { tensor.copy_(flat); });
    }
    return flat;
  }

  // Memory that holds the tensor's elements before the job and the result's afterwards.
  at::Tensor in_place(const at::Tensor& tensor) {
    auto flat = output(tensor);
    if (!flat.is_same(tensor)) {
      at::AutoDispatchBelowADInplaceOrView below;
      flat.copy_(tensor);
    }
    return flat;
  }

  // The same for a reduction, which 16-bit integers do as 32-bit ones.
  at::Tensor to_reduce(const at::Tensor& tensor, bool returns) {
    if (!needs_widening(tensor)) return returns ? in_place(tensor) : input(tensor);
    check_tensor(tensor, call);
    auto wide = tensor.to(at::kInt).contiguous();
    job.keep.push_back(wide);
    if (returns) {
      job.outputs.push_back(tensor);
      job.after.push_back([tensor, wide] { tensor.copy_(wide); });
    }
    return wide;
  }

  // Output of a reduction whose input is elsewhere.
  at::Tensor reduced(const at::Tensor& tensor) {
    if (!needs_widening(tensor)) return output(tensor);
    check_tensor(tensor, call);
    auto wide = at::empty(tensor.sizes(), tensor.options().dtype(at::kInt));
    job.keep.push_back(wide);
    job.outputs.push_back(tensor);
    job.after.push_back([tensor, wide] { tensor.copy_(wide); });
    return wide;
  }

  void reduce_by(ringccl_op& op, const at::Tensor& tensor, const c10d::ReduceOp& reduction) {
    auto reducing = reduction_of(tensor, reduction, call);
    op.reduction = reducing.code;
    if (reducing.factor.defined()) {
      op.factor = reducing.factor.data_ptr();
      job.keep.push_back(reducing.factor);
    }
  }

  void all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& reduction) {
    auto flat = to_reduce(tensor, true);
    auto op = op_of(RINGCCL_ALL_REDUCE, elements_of(flat).dtype, flat.data_ptr(), flat.data_ptr(), count_of(flat));
    reduce_by(op, flat, reduction);
    job.ops.push_back(op);
  }

  void reduce(const at::Tensor& tensor, const c10d::ReduceOp& reduction, int root) {
    auto flat = to_reduce(tensor, rank == root);
    if (rank != root) job.outputs.push_back(tensor);
    auto op = op_of(RINGCCL_REDUCE, elements_of(flat).dtype, flat.data_ptr(), flat.data_ptr(), count_of(flat), root);
    reduce_by(op, flat, reduction);
    job.ops.push_back(op);
  }

  void broadcast(const at::Tensor& tensor, int root) {
    auto flat = in_place(tensor);
    job.ops.push_back(
        op_of(RINGCCL_BROADCAST, elements_of(flat).dtype, flat.data_ptr(), flat.data_ptr(), count_of(flat), root));
  }

  // From one buffer of each rank to one with a block of every rank.
  void all_gather_flat(const at::Tensor& output_tensor, const at::Tensor& input_tensor) {
    same_type(output_tensor, input_tensor);
    TORCH_CHECK(output_tensor.numel() == input_tensor.numel() * size, "ringccl: ", call, ": the output has ",
                output_tensor.numel(), " elements; it must have ", size, " times the input's ", input_tensor.numel());
    auto from = input(input_tensor);
    auto to = output(output_tensor);
    job.ops.push_back(
        op_of(RINGCCL_ALL_GATHER, elements_of(from).dtype, from.data_ptr(), to.data_ptr(), count_of(from)));
  }

  // To a list with a tensor for each rank, of any lengths that all ranks agree on.
  void all_gather(const Tensors& outputs, const at::Tensor& input_tensor) {
    check_list(outputs, input_tensor, "output");
    auto from = input(input_tensor);
    TORCH_CHECK(outputs[rank].numel() == from.numel(), "ringccl: ", call, ": the input has ", from.numel(),
                " elements, the output for rank ", rank, " ", outputs[rank].numel());
    auto to = scattered(outputs, from.options());
    auto each = elements_of(from);
    if (are_even(outputs)) {
      job.ops.push_back(op_of(RINGCCL_ALL_GATHER, each.dtype, from.data_ptr(), to.data_ptr(), count_of(from)));
      return;
    }
    auto op = op_of(RINGCCL_ALL_GATHER_V, each.dtype, from.data_ptr(), to.data_ptr(), 0);
    op.counts = counts_of(outputs, each.each);
    job.ops.push_back(op);
  }

  void reduce_scatter_flat(const at::Tensor& output_tensor, const at::Tensor& input_tensor,
                           const c10d::ReduceOp& reduction) {
    same_type(output_tensor, input_tensor);
    TORCH_CHECK(input_tensor.numel() == output_tensor.numel() * size, "ringccl: ", call, ": the input has ",
                input_tensor.numel(), " elements; it must have ", size, " times the output's ", output_tensor.numel());
    auto from = to_reduce(input_tensor, false);
    auto to = reduced(output_tensor);
    auto op = op_of(RINGCCL_REDUCE_SCATTER, elements_of(from).dtype, from.data_ptr(), to.data_ptr(), count_of(to));
    reduce_by(op, from, reduction);
    job.ops.push_back(op);
  }

  void reduce_scatter(const at::Tensor& output_tensor, const Tensors& inputs, const c10d::ReduceOp& reduction) {
    check_list(inputs, output_tensor, "input");
    TORCH_CHECK(inputs[rank].numel() == output_tensor.numel(), "ringccl: ", call, ": the output has ",
                output_tensor.numel(), " elements, the input for rank ", rank, " ", inputs[rank].numel());
    auto from = to_reduce(joined(inputs), false);
    auto to = reduced(output_tensor);
    auto each = elements_of(from);
    auto op = op_of(RINGCCL_REDUCE_SCATTER, each.dtype, from.data_ptr(), to.data_ptr(), count_of(to));
    if (!are_even(inputs)) {
      op.kind = RINGCCL_REDUCE_SCATTER_V;
      op.counts = counts_of(inputs, each.each);
    }
    reduce_by(op, from, reduction);
    job.ops.push_back(op);
  }

  // Blocks of rows: `sizes` says how many for each rank; none means equal ones.
  void all_to_all_flat(const at::Tensor& output_tensor, const at::Tensor& input_tensor,
                       const std::vector<int64_t>& output_sizes, const std::vector<int64_t>& input_sizes) {
    same_type(output_tensor, input_tensor);
    auto from = input(input_tensor);
    auto to = output(output_tensor);
    auto each = elements_of(from);
    if (output_sizes.empty() && input_sizes.empty()) {
      TORCH_CHECK(from.numel() == to.numel() && from.numel() % size == 0, "ringccl: ", call, ": buffers of ",
                  from.numel(), " and ", to.numel(), " elements cannot be exchanged in equal blocks by ", size, " ranks");
      job.ops.push_back(
          op_of(RINGCCL_ALL_TO_ALL, each.dtype, from.data_ptr(), to.data_ptr(), count_of(from) / size));
      return;
    }
    exchange(from, rows(from, input_sizes), to, rows(to, output_sizes));
  }

  void all_to_all(const Tensors& outputs, const Tensors& inputs) {
    TORCH_CHECK(!inputs.empty(), "ringccl: ", call, ": no tensors");
    check_list(outputs, inputs[0], "output");
    check_list(inputs, inputs[0], "input");
    auto from = joined(inputs);
    auto to = scattered(outputs, from.options());
    auto each = elements_of(from).each;
    job.keep.push_back(from);
    counts_of(inputs, each);
    counts_of(outputs, each);
    auto sent = job.counts[job.counts.size() - 2];
    auto received = job.counts.back();
    job.counts.resize(job.counts.size() - 2);
    exchange(from, std::move(sent), to, std::move(received));
  }

  // To `outputs` on the root, which are none on the other ranks.
  void gather(const Tensors& outputs, const at::Tensor& input_tensor, int root) {
    auto from = input(input_tensor);
    at::Tensor to;
    if (rank == root) {
      check_list(outputs, from, "output");
      check_even(outputs, from);
      to = scattered(outputs, from.options());
    } else {
      TORCH_CHECK(outputs.empty(), "ringccl: ", call, ": outputs on rank ", rank, ", but only the root, ", root,
                  ", has some");
    }
    job.ops.push_back(op_of(RINGCCL_GATHER, elements_of(from).dtype, from.data_ptr(),
                            to.defined() ? to.data_ptr() : nullptr, count_of(from), root));
  }

  void gather_flat(const at::Tensor& output_tensor, const at::Tensor& input_tensor, int root) {
    auto from = input(input_tensor);
    void* to = nullptr;
    if (rank == root) {
      same_type(output_tensor, input_tensor);
      TORCH_CHECK(output_tensor.numel() == from.numel() * size, "ringccl: ", call, ": the output has ",
                  output_tensor.numel(), " elements; it must have ", size, " times the input's ", from.numel());
      to = output(output_tensor).data_ptr();
    }
    job.ops.push_back(op_of(RINGCCL_GATHER, elements_of(from).dtype, from.data_ptr(), to, count_of(from), root));
  }

  void scatter(const at::Tensor& output_tensor, const Tensors& inputs, int root) {
    auto to = output(output_tensor);
    const void* from = nullptr;
    if (rank == root) {
      check_list(inputs, to, "input");
      check_even(inputs, to);
      auto all = joined(inputs);
      job.keep.push_back(all);
      from = all.data_ptr();
    } else {
      TORCH_CHECK(inputs.empty(), "ringccl: ", call, ": inputs on rank ", rank, ", but only the root, ", root,
                  ", has some");
    }
    job.ops.push_back(op_of(RINGCCL_SCATTER, elements_of(to).dtype, from, to.data_ptr(), count_of(to), root));
  }

  void send(const at::Tensor& tensor, int peer, uint32_t tag) {
    auto flat = input(tensor);
    auto op = op_of(RINGCCL_SEND, elements_of(flat).dtype, flat.data_ptr(), nullptr, count_of(flat), peer);
    op.tag = tag;
    job.ops.push_back(op);
  }

  void recv(const at::Tensor& tensor, int peer, uint32_t tag) {
    auto flat = output(tensor);
    auto op = op_of(RINGCCL_RECV, elements_of(flat).dtype, nullptr, flat.data_ptr(), count_of(flat), peer);
    op.tag = tag;
    job.ops.push_back(op);
  }

  void barrier() { job.ops.push_back(op_of(RINGCCL_BARRIER, RINGCCL_U8, nullptr, nullptr, 0)); }

 private:
  void check_list(const Tensors& list, const at::Tensor& other, const char* which) {
    TORCH_CHECK(list.size() == static_cast<size_t>(size), "ringccl: ", call, ": the ", which, " list has ", list.size(),
                " tensors for ", size, " ranks");
    check_tensor(other, call);
    for (const auto& tensor : list) {
      check_tensor(tensor, call);
      same_type(tensor, other);
    }
  }

  static bool are_even(const Tensors& list) {
    return std::all_of(list.begin(), list.end(), [&](const auto& t) { return t.numel() == list[0].numel(); });
  }

  void check_even(const Tensors& list, const at::Tensor& other) {
    TORCH_CHECK(are_even(list) && list[0].numel() == other.numel(), "ringccl: ", call, ": all tensors of the list must ",
                "have as many elements as the other tensor, ", other.numel());
  }

  const uint64_t* counts_of(const Tensors& list, uint64_t each) {
    std::vector<uint64_t> counts;
    for (const auto& tensor : list) counts.push_back(static_cast<uint64_t>(tensor.numel()) * each);
    job.counts.push_back(std::move(counts));
    return job.counts.back().data();
  }

  // One buffer with the elements of all tensors.
  static at::Tensor joined(const Tensors& list) {
    int64_t total = 0;
    for (const auto& tensor : list) total += tensor.numel();
    auto flat = at::empty({total}, list[0].options().memory_format(c10::MemoryFormat::Contiguous));
    at::AutoDispatchBelowADInplaceOrView below;
    int64_t at = 0;
    for (const auto& tensor : list) {
      flat.narrow(0, at, tensor.numel()).view(tensor.sizes()).copy_(tensor);
      at += tensor.numel();
    }
    return flat;
  }

  // One buffer whose parts are the tensors' elements when the job is over.
  at::Tensor scattered(const Tensors& list, const at::TensorOptions& options) {
    int64_t total = 0;
    for (const auto& tensor : list) total += tensor.numel();
    auto flat = at::empty({total}, options.memory_format(c10::MemoryFormat::Contiguous));
    job.keep.push_back(flat);
    job.outputs.insert(job.outputs.end(), list.begin(), list.end());
    job.after.push_back([list, flat] {
      int64_t at = 0;
      for (const auto& tensor : list) {
        tensor.copy_(flat.narrow(0, at, tensor.numel()).view(tensor.sizes()));
        at += tensor.numel();
      }
    });
    return flat;
  }

  // Elements of each rank's rows.
  std::vector<uint64_t> rows(const at::Tensor& flat, const std::vector<int64_t>& sizes) {
    int64_t all = flat.dim() > 0 ? flat.size(0) : 1;
    std::vector<int64_t> own = sizes;
    if (own.empty()) {
      TORCH_CHECK(all % size == 0, "ringccl: ", call, ": ", all, " rows cannot be cut in equal blocks for ", size, " ranks");
      own.assign(size, all / size);
    }
    int64_t sum = 0;
    for (auto count : own) {
      TORCH_CHECK(count >= 0, "ringccl: ", call, ": a split size is negative");
      sum += count;
    }
    TORCH_CHECK(own.size() == static_cast<size_t>(size) && sum == all, "ringccl: ", call, ": ", own.size(),
                " split sizes with a sum of ", sum, " for ", size, " ranks and ", all, " rows");
    uint64_t row = all > 0 ? count_of(flat) / static_cast<uint64_t>(all) : 0;
    std::vector<uint64_t> counts;
    for (auto count : own) counts.push_back(static_cast<uint64_t>(count) * row);
    return counts;
  }

  void exchange(const at::Tensor& from, std::vector<uint64_t> sent, const at::Tensor& to,
                std::vector<uint64_t> received) {
    auto op = op_of(RINGCCL_ALL_TO_ALL_V, elements_of(from).dtype, from.data_ptr(), to.data_ptr(), 0);
    job.counts.push_back(std::move(sent));
    op.counts = job.counts.back().data();
    job.counts.push_back(std::move(received));
    op.recv_counts = job.counts.back().data();
    job.ops.push_back(op);
  }
};

}  // namespace ringccl_torch
