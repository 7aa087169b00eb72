// Tensors in memory that other ranks may read: collectives on registered memory copy nothing.
#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "ringccl.h"

namespace ringccl_torch {

// Shared memory, for as long as a tensor or a pool uses it.
struct Region {
  void* address = nullptr;
  uint64_t bytes;
  ringccl_memory* raw = nullptr;

  explicit Region(uint64_t bytes) : bytes(bytes) {
    TORCH_CHECK(ringccl_memory_new(bytes, &address, &raw) == RINGCCL_OK, "ringccl: ", ringccl_last_error());
  }
  Region(const Region&) = delete;
  ~Region() { ringccl_memory_free(raw); }
};

// What a tensor's storage holds on to.
struct Holding {
  std::shared_ptr<Region> region;
  std::function<void()> give_back;
  ~Holding() {
    if (give_back) give_back();
  }
};

inline void drop_holding(void* holding) { delete static_cast<Holding*>(holding); }

// A tensor of these sizes at `address`.
inline at::Tensor tensor_at(void* address, at::IntArrayRef sizes, const at::TensorOptions& options, Holding* holding) {
  auto type = c10::scalarTypeToTypeMeta(c10::typeMetaToScalarType(options.dtype()));
  auto bytes = static_cast<int64_t>(c10::multiply_integers(sizes)) * static_cast<int64_t>(type.itemsize());
  at::DataPtr data(address, holding, &drop_holding, at::kCPU);
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, std::move(data),
                                                       nullptr, false);
  return at::empty({0}, options.device(at::kCPU)).set_(c10::Storage(std::move(storage)), 0, sizes);
}

// Memory of its own for one tensor.
inline at::Tensor shared_empty(at::IntArrayRef sizes, const at::TensorOptions& options) {
  auto type = c10::typeMetaToScalarType(options.dtype());
  auto bytes = static_cast<uint64_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  auto region = std::make_shared<Region>(std::max<uint64_t>(bytes, 1));
  void* address = region->address;
  return tensor_at(address, sizes, options, new Holding{std::move(region), nullptr});
}

// The shared memory that the tensor lies in, if it does.
inline ringccl_memory* shared_memory_of(const at::Tensor& tensor) {
  if (!tensor.has_storage()) return nullptr;
  auto& data = tensor.storage().data_ptr();
  if (data.get_deleter() != &drop_holding) return nullptr;
  return static_cast<Holding*>(data.get_context())->region->raw;
}

// Buffers for a group's collectives, from one region that is registered with it.
//
// Registering is collective, so it happens once, with the first request, which all ranks make at the same place of the
// program. What does not fit later is ordinary memory: never wrong, only slower.
class Pool {
 public:
  at::Tensor allocate(const ringccl_comm* comm, int64_t elements, at::TensorOptions options) {
    auto type = c10::typeMetaToScalarType(options.dtype());
    auto bytes = round_up(static_cast<uint64_t>(elements) * c10::elementSize(type));
    std::lock_guard<std::mutex> lock(state_->mutex);
    if (!state_->region) start(comm, bytes);
    auto offset = state_->take(bytes);
    if (offset == NONE) return at::empty({elements}, options);
    auto state = state_;
    auto give_back = [state, offset, bytes] {
      std::lock_guard<std::mutex> lock(state->mutex);
      state->give_back(offset, bytes);
    };
    auto* address = static_cast<char*>(state_->region->address) + offset;
    return tensor_at(address, {elements}, options, new Holding{state_->region, std::move(give_back)});
  }

 private:
  static constexpr uint64_t NONE = ~0ull;
  static constexpr uint64_t LEAST = 32ull << 20, MOST = 1ull << 30;

  static uint64_t round_up(uint64_t bytes) { return std::max<uint64_t>((bytes + 4095) & ~4095ull, 4096); }

  void start(const ringccl_comm* comm, uint64_t first) {
    auto bytes = std::min(std::max(8 * first, LEAST), std::max(MOST, round_up(first)));
    auto region = std::make_shared<Region>(bytes);
    TORCH_CHECK(ringccl_memory_register(region->raw, comm) == RINGCCL_OK, "ringccl: ", ringccl_last_error());
    state_->free[0] = bytes;
    state_->region = std::move(region);
  }

  struct State {
    std::mutex mutex;
    std::shared_ptr<Region> region;
    std::map<uint64_t, uint64_t> free;  // offset to bytes; neighbours are joined

    // The first place with as many bytes.
    uint64_t take(uint64_t bytes) {
      for (auto it = free.begin(); it != free.end(); ++it) {
        auto [offset, size] = *it;
        if (size < bytes) continue;
        free.erase(it);
        if (size > bytes) free[offset + bytes] = size - bytes;
        return offset;
      }
      return NONE;
    }

    void give_back(uint64_t offset, uint64_t bytes) {
      auto it = free.emplace(offset, bytes).first;
      auto next = std::next(it);
      if (next != free.end() && offset + it->second == next->first) {
        it->second += next->second;
        free.erase(next);
      }
      if (it == free.begin()) return;
      auto before = std::prev(it);
      if (before->first + before->second == offset) {
        before->second += it->second;
        free.erase(it);
      }
    }
  };

  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace ringccl_torch
