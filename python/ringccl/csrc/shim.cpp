// The backend as PyTorch finds it: operators that put it into a process group. No Python in it, so that one binary
// serves every Python of a torch version.

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/library.h>

#include "backend.hpp"

namespace ringccl_torch {
namespace {

RingBackend& backend_of(const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  auto backend = group->getBackend(c10::DeviceType::CPU);
  auto* ours = dynamic_cast<RingBackend*>(backend.get());
  TORCH_CHECK(ours, "ringccl: the group's CPU backend is ", backend->getBackendName(), ", not ringccl");
  return *ours;
}

// Joins the group's other ranks.
void attach(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const std::string& prefix, int64_t rank, int64_t size,
            const std::string& name, double timeout_s, bool reports, bool crowded) {
  auto store = c10::make_intrusive<c10d::PrefixStore>(prefix, group->getStore());
  auto timeout = std::max(Millis(static_cast<int64_t>(timeout_s * 1e3)), Millis(1));
  RingBackend::Setup setup = {name, timeout, reports, crowded};
  auto backend = c10::make_intrusive<RingBackend>(store, static_cast<int>(rank), static_cast<int>(size), setup);
  group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM, backend);
}

void register_tensor(const c10::intrusive_ptr<c10d::ProcessGroup>& group, const at::Tensor& tensor) {
  backend_of(group).register_memory(tensor);
}

at::Tensor empty(at::IntArrayRef sizes, at::ScalarType type) {
  return shared_empty(sizes, at::TensorOptions().dtype(type));
}

// Moves the tensor's memory, with what is in it, to where other ranks can read it. All its views follow.
void share(const at::Tensor& tensor) {
  if (shared_memory_of(tensor)) return;
  auto* storage = tensor.storage().unsafeGetStorageImpl();
  auto region = std::make_shared<Region>(std::max<uint64_t>(storage->nbytes(), 1));
  std::memcpy(region->address, storage->data(), storage->nbytes());
  void* address = region->address;
  // What raw pointers into the old memory still read stays.
  auto old = std::make_shared<at::DataPtr>(
      storage->set_data_ptr(at::DataPtr(address, nullptr, [](void*) {}, at::kCPU)));
  auto* holding = new Holding{std::move(region), [old] {}};
  storage->set_data_ptr_noswap(at::DataPtr(address, holding, &drop_holding, at::kCPU));
}

bool is_shared(const at::Tensor& tensor) { return shared_memory_of(tensor) != nullptr; }

}  // namespace

TORCH_LIBRARY(ringccl, m) {
  m.def(
      "attach(__torch__.torch.classes.c10d.ProcessGroup group, str prefix, int rank, int size, str name, "
      "float timeout, bool reports, bool crowded) -> ()",
      attach);
  m.def("register(__torch__.torch.classes.c10d.ProcessGroup group, Tensor tensor) -> ()", register_tensor);
  m.def("empty(int[] sizes, ScalarType dtype) -> Tensor", empty);
  m.def("share(Tensor tensor) -> ()", share);
  m.def("is_shared(Tensor tensor) -> bool", is_shared);
}

}  // namespace ringccl_torch
