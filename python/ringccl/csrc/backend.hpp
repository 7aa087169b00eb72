// The process group's backend: every collective of c10d::Backend, each as a job of the library.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <torch/csrc/autograd/graph_task.h>

#include <atomic>
#include <map>

#include "jobs.hpp"
#include "memory.hpp"
#include "rendezvous.hpp"

namespace ringccl_torch {

// Tags of our own, which no program has: torch's are not negative.
constexpr uint32_t OWN_TAGS = 1u << 31;

class RingBackend : public c10d::Backend {
 public:
  struct RingOptions : c10d::Backend::Options {
    explicit RingOptions(Millis timeout) : Options("ringccl", timeout) {}
    c10::intrusive_ptr<Options> clone() const override { return c10::make_intrusive<RingOptions>(*this); }
  };

  // What does not follow from the group.
  struct Setup {
    std::string name;  // what profilers see
    Millis timeout;
    bool reports;  // whether this group writes the report
    bool crowded;  // whether every core has a rank, so that none is left for a thread of the library
  };

  RingBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, Setup setup)
      : Backend(rank, size),
        setup_(std::move(setup)),
        options_(c10::make_intrusive<RingOptions>(setup_.timeout)),
        comm_(join(std::move(store), rank, size, setup_.timeout, setup_.reports)) {
    init();
  }

  ~RingBackend() override = default;

  const std::string getBackendName() const override { return "ringccl"; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  uint64_t getSequenceNumberForGroup() override { return seq_; }
  void setTimeout(Millis timeout) override { options_->timeout = timeout; }

  c10d::ErrorType getError() override {
    auto comm = comm_or_none();
    if (!comm) return c10d::ErrorType::SUCCESS;
    switch (ringccl_comm_error(comm->raw)) {
      case RINGCCL_OK: return c10d::ErrorType::SUCCESS;
      case RINGCCL_TIMEOUT: return c10d::ErrorType::TIMEOUT;
      case RINGCCL_REMOTE: return c10d::ErrorType::REMOTE_ERROR;
      default: return c10d::ErrorType::COMM_ERROR;
    }
  }

  void abort() override {
    if (auto comm = take_comm()) ringccl_comm_abort(comm->raw);
  }

  // Only a group that writes a report has to wait for the others.
  void shutdown() override {
    auto comm = take_comm();
    if (!comm || !setup_.reports) return;
    if (ringccl_comm_finalize(comm->raw) != RINGCCL_OK) {
      TORCH_WARN("ringccl: rank ", getRank(), " left alone: ", ringccl_last_error());
    }
  }

  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& opts) override {
    auto place = std::find(ranks.begin(), ranks.end(), getRank());
    if (place == ranks.end()) return nullptr;
    Setup setup = {setup_.name, opts ? opts->timeout : options_->timeout, false, setup_.crowded};
    auto part = c10::make_intrusive<RingBackend>(store, static_cast<int>(place - ranks.begin()),
                                                 static_cast<int>(ranks.size()), std::move(setup));
    if (opts) part->options_->group_name = opts->group_name;
    return part;
  }

  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }

  at::Tensor allocateTensor(long size, at::TensorOptions options) override {
    return pool_.allocate(comm()->raw, size, options);
  }

  // Registers memory of ringccl.empty(); every rank calls this.
  void register_memory(const at::Tensor& tensor) {
    auto* memory = shared_memory_of(tensor);
    TORCH_CHECK(memory, "ringccl: register: the tensor's memory does not come from ringccl.empty()");
    check(ringccl_memory_register(memory, comm()->raw), "register");
  }

  void startCoalescing() override {
    std::lock_guard<std::mutex> lock(batch_mutex_);
    batch_ = std::make_unique<Batch>();
    batch_->whole = work(c10d::OpType::COALESCED, "coalesced", nullptr, {}, kUnsetTimeout);
  }

  c10::intrusive_ptr<c10d::Work> endCoalescing() override {
    std::unique_ptr<Batch> batch;
    {
      std::lock_guard<std::mutex> lock(batch_mutex_);
      batch = std::move(batch_);
    }
    TORCH_CHECK(batch, "ringccl: endCoalescing without startCoalescing");
    auto whole = batch->whole;
    whole->start(comm(), std::move(batch->job), whole);
    return whole;
  }

#include "collectives.inc"

 private:
  struct Batch {
    Job job;
    c10::intrusive_ptr<RingWork> whole;
  };

  std::shared_ptr<Comm> comm_or_none() {
    std::lock_guard<std::mutex> lock(comm_mutex_);
    return comm_;
  }

  std::shared_ptr<Comm> comm() {
    auto comm = comm_or_none();
    TORCH_CHECK(comm, "ringccl: rank ", getRank(), ": this process group was shut down or aborted");
    return comm;
  }

  std::shared_ptr<Comm> take_comm() {
    std::lock_guard<std::mutex> lock(comm_mutex_);
    return std::exchange(comm_, nullptr);
  }

  void check(ringccl_status status, const char* call) {
    if (status == RINGCCL_OK) return;
    std::rethrow_exception(
        backend_error(c10::str("ringccl: ", call, " on rank ", getRank(), " of ", getSize(), ": ", ringccl_last_error())));
  }

  // The time limit of a call, where it is not that of the communicator itself.
  Millis limit_of(Millis asked) const {
    if (asked.count() >= 0) return asked;
    return options_->timeout == setup_.timeout ? kUnsetTimeout : options_->timeout;
  }

  c10::intrusive_ptr<RingWork> work(c10d::OpType type, const char* call, const char* title,
                                    const std::vector<at::Tensor>& inputs, Millis timeout) {
    RingWork::About about = {call, getRank(), getSize(), limit_of(timeout), options_->timeout};
    // Without a profiler nobody wants a title, and making the record takes time.
    if (title && at::hasCallbacks()) {
      auto full = setup_.name + ":" + title;
      return c10::make_intrusive<RingWork>(about, type, full.c_str(), inputs, seq_);
    }
    return c10::make_intrusive<RingWork>(about, type, nullptr, std::nullopt, seq_);
  }

  Maker maker(const char* call) { return Maker(call, getRank(), getSize()); }

  // Whether to run a collective here and now although its caller has not asked for that. In a backward pass every rank
  // issues the same collectives in the same order, so nothing waits for what comes after; and where all cores compute, a
  // thread that exchanges meanwhile gains nothing and costs switches (measured: 133 ms a step, 104 ms so).
  bool better_here(c10d::OpType type) const {
    bool is_message = type == c10d::OpType::SEND || type == c10d::OpType::RECV || type == c10d::OpType::RECVANYSOURCE;
    return setup_.crowded && !is_message && torch::autograd::get_current_graph_task_id() != -1;
  }

  // Runs a job: here and now if nobody wants it to go on meanwhile, or as part of the batch that is being made.
  c10::intrusive_ptr<c10d::Work> submit(Maker& maker, c10d::OpType type, const char* title,
                                        const std::vector<at::Tensor>& inputs, bool async, Millis timeout) {
    ++seq_;
    auto comm = this->comm();
    auto work = this->work(type, maker.call, title, inputs, timeout);
    if (std::lock_guard<std::mutex> lock(batch_mutex_); batch_) {
      work->set_batch(batch_->whole, maker.job.outputs);
      batch_->whole->add_part(work);
      batch_->job.append(std::move(maker.job));
      return work;
    }
    if (maker.job.ops.empty()) {
      work->skip(std::move(maker.job));
    } else if ((!async || better_here(type)) && maker.job.ops.size() == 1 && limit_of(timeout).count() < 0) {
      work->run(std::move(comm), std::move(maker.job));
    } else {
      work->start(std::move(comm), std::move(maker.job), work);
    }
    return work;
  }

  const Setup setup_;
  c10::intrusive_ptr<RingOptions> options_;
  std::mutex comm_mutex_;
  std::shared_ptr<Comm> comm_;
  std::atomic<uint64_t> seq_{0};
  std::atomic<uint32_t> monitored_{0};
  std::mutex batch_mutex_;
  std::unique_ptr<Batch> batch_;
  Pool pool_;
};

}  // namespace ringccl_torch
