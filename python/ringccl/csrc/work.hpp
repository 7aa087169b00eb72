// What a call of the backend returns: operations that have ended, run behind the caller's back, or wait to be batched.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/record_function.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tensors.hpp"

namespace ringccl_torch {

using Millis = std::chrono::milliseconds;
using c10d::kUnsetTimeout;

// A communicator, for as long as anything needs it.
struct Comm {
  ringccl_comm* raw;
  explicit Comm(ringccl_comm* raw) : raw(raw) {}
  Comm(const Comm&) = delete;
  ~Comm() { ringccl_comm_free(raw); }
};

// Operations with everything that they need.
struct Job {
  std::vector<ringccl_op> ops;
  std::vector<std::vector<uint64_t>> counts;    // lists that operations point to
  std::vector<at::Tensor> keep;                 // memory that operations use
  std::vector<std::function<void()>> after;     // copies results to where they belong
  std::vector<at::Tensor> outputs;

  void append(Job&& other) {
    auto move_all = [](auto& to, auto& from) {
      to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
    };
    move_all(ops, other.ops);
    move_all(counts, other.counts);  // the lists themselves stay where they are
    move_all(keep, other.keep);
    move_all(after, other.after);
    move_all(outputs, other.outputs);
  }

  // Operations work on memory, not on what autograd knows of it.
  void finish() {
    if (after.empty()) return;
    at::AutoDispatchBelowADInplaceOrView below;
    for (auto& copy : after) copy();
    after.clear();
  }
};

// An error of a communicator as PyTorch's programs expect it.
inline std::exception_ptr backend_error(const std::string& text) {
  return std::make_exception_ptr(c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text));
}

class RingWork : public c10d::Work {
 public:
  // What the texts of errors begin with.
  struct About {
    const char* call;
    int rank, size;
    Millis limit;        // of the operation; none if negative
    Millis usual_limit;  // of the communicator, for texts
  };

  RingWork(About about, c10d::OpType type, const char* title, const std::optional<std::vector<at::Tensor>>& inputs,
           uint64_t seq)
      : c10d::Work(about.rank, type, title, inputs), about_(about), seq_(seq) {}

  ~RingWork() override { ringccl_work_free(raw_); }

  // Operations that end here and now.
  void run(std::shared_ptr<Comm> comm, Job job) {
    job_ = std::move(job);
    auto status = ringccl_comm_run(comm->raw, job_.ops.data());
    if (status == RINGCCL_OK) job_.finish();
    auto error = status == RINGCCL_OK ? nullptr : error_of(status, ringccl_last_error());
    close(error);
    if (error) std::rethrow_exception(error);
  }

  // Operations that go on when this returns.
  void start(std::shared_ptr<Comm> comm, Job job, c10::intrusive_ptr<RingWork> whole) {
    job_ = std::move(job);
    comm_ = std::move(comm);
    auto* keep = new std::vector<at::Tensor>(job_.keep);
    auto release = [](void* context) { delete static_cast<std::vector<at::Tensor>*>(context); };
    ringccl_work* raw = nullptr;
    auto status = ringccl_comm_start(comm_->raw, job_.ops.data(), job_.ops.size(), release, keep, &raw);
    if (status != RINGCCL_OK) {
      auto error = error_of(status, ringccl_last_error());
      close(error);
      std::rethrow_exception(error);
    }
    std::lock_guard<std::mutex> lock(raw_mutex_);
    raw_ = raw;
    // While a program is profiled, events end when operations do and not when somebody asks.
    if (recordFunctionEndCallback_) call_back(std::move(whole));
  }

  // Nothing to do.
  void skip(Job job) {
    job_ = std::move(job);
    job_.finish();
    close(nullptr);
  }

  bool isCompleted() override {
    if (is_over()) return true;
    if (batch_) return batch_->isCompleted() && is_over();
    std::unique_lock<std::mutex> lock(raw_mutex_, std::try_to_lock);
    return lock.owns_lock() && !calls_back_ && raw_ && look(0);
  }

  bool wait(Millis timeout = kNoTimeout) override {
    auto limit = timeout.count() > 0 ? timeout : about_.limit;
    auto until = limit.count() >= 0 ? std::chrono::steady_clock::now() + limit : far_away();
    if (!is_over() && !wait_until(until)) {
      std::rethrow_exception(backend_error(timed_out(limit)));
    }
    std::lock_guard<std::mutex> lock(mutex_);
    if (exception_) std::rethrow_exception(exception_);
    return true;
  }

  void blockCurrentStream() override { wait(); }
  void synchronize() override { wait(); }
  std::vector<at::Tensor> result() override { return job_.outputs; }
  uint64_t getSequencenumber() const override { return seq_; }
  Millis getTimeout() const override { return about_.limit.count() >= 0 ? about_.limit : about_.usual_limit; }

  int sourceRank() const override {
    TORCH_CHECK(source_ >= 0, "sourceRank() may only be called on the result of a recv from any rank, after it");
    return source_;
  }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    auto future = make_future();
    if (batch_ && !is_over()) batch_->getFuture();  // has the end of the whole told
    std::unique_lock<std::mutex> lock(raw_mutex_);
    if (is_over()) {
      complete_future();
    } else if (raw_ && !calls_back_) {
      call_back(c10::intrusive_ptr<RingWork>::unsafe_reclaim_from_nonowning(this));
    }
    return future;
  }

  // Ends it together with the batch that it is part of.
  void end_with(std::exception_ptr error) {
    close(std::move(error));
    complete_future();
  }

  void set_batch(c10::intrusive_ptr<RingWork> batch, std::vector<at::Tensor> outputs) {
    batch_ = std::move(batch);
    job_.outputs = std::move(outputs);
  }
  void add_part(const c10::intrusive_ptr<RingWork>& part) { parts_.emplace_back(part); }

 private:
  static std::chrono::steady_clock::time_point far_away() {
    return std::chrono::steady_clock::now() + std::chrono::hours(24 * 365);
  }

  bool is_over() { return c10d::Work::isCompleted(); }

  std::string prefix() const {
    return c10::str("ringccl: ", about_.call, " on rank ", about_.rank, " of ", about_.size, ": ");
  }

  std::string timed_out(Millis limit) const {
    return c10::str(prefix(), "Timed out waiting ", limit.count(), "ms for it; it goes on, and its tensors must not be ",
                    "touched until the group is aborted or destroyed");
  }

  std::exception_ptr error_of(ringccl_status status, const char* text) const {
    if (status == RINGCCL_TIMEOUT) {
      return backend_error(c10::str(prefix(), "Timed out waiting ", about_.usual_limit.count(), "ms: ", text));
    }
    return backend_error(prefix() + text);
  }

  bool wait_until(std::chrono::steady_clock::time_point until) {
    if (batch_) return batch_->is_over() || batch_->wait_until(until);
    std::unique_lock<std::mutex> lock(raw_mutex_);
    TORCH_CHECK(raw_ || is_over(), prefix(), "the operation is part of a batch that was not ended yet");
    if (!calls_back_ && !is_over()) {
      auto left = until - std::chrono::steady_clock::now();
      auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
      return look(ns > 0 ? static_cast<uint64_t>(ns) : 0);
    }
    lock.unlock();
    std::unique_lock<std::mutex> own(mutex_);
    return cv_.wait_until(own, until, [this] { return completed_; });
  }

  // Waits for `ns` at most; whether it is over. Under the lock of `raw_`.
  bool look(uint64_t ns) {
    auto status = ringccl_work_wait(raw_, ns);
    if (status == RINGCCL_PENDING) return false;
    finish_as(status, status == RINGCCL_OK ? "" : ringccl_last_error());
    return true;
  }

  // Has the end told by a call. Under the lock of `raw_`, which a call that comes at once does not take.
  void call_back(c10::intrusive_ptr<RingWork> self) {
    calls_back_ = true;
    auto done = [](void* context, ringccl_status status, const char* text) {
      auto work = c10::intrusive_ptr<RingWork>::reclaim(static_cast<RingWork*>(context));
      work->finish_as(status, text);
    };
    auto status = ringccl_work_on_done(raw_, done, self.release());
    TORCH_INTERNAL_ASSERT(status == RINGCCL_OK, ringccl_last_error());
  }

  // The operations have ended.
  void finish_as(ringccl_status status, const char* text) {
    std::exception_ptr error;
    if (status == RINGCCL_OK) {
      source_ = ringccl_work_source(raw_);
      try {
        job_.finish();
      } catch (...) {
        error = std::current_exception();
      }
    } else {
      error = error_of(status, text);
    }
    close(error);
    for (auto& part : parts_) {
      if (auto held = part.lock()) held->end_with(error);
    }
    complete_future();
  }

  // As the base class says it; also ends the profiler's event.
  void close(std::exception_ptr error) { finish(std::move(error)); }

  c10::intrusive_ptr<c10::ivalue::Future> make_future() {
    std::lock_guard<std::mutex> lock(future_mutex_);
    if (!future_) {
      future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    }
    return future_;
  }

  // Ends the future, if there is one and nobody else does. Whoever makes one looks afterwards whether that is due.
  void complete_future() {
    {
      std::lock_guard<std::mutex> lock(future_mutex_);
      if (!future_ || future_ended_) return;
      future_ended_ = true;
    }
    std::exception_ptr error = exception();
    if (error) {
      future_->setError(error);
    } else {
      future_->markCompleted(c10::IValue(c10::List<at::Tensor>(job_.outputs)));
    }
  }

  About about_;
  uint64_t seq_;
  Job job_;
  std::shared_ptr<Comm> comm_;
  // Held by whoever waits in the library, which is one thread at a time.
  std::mutex raw_mutex_;
  ringccl_work* raw_ = nullptr;
  bool calls_back_ = false;
  int source_ = -1;
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  bool future_ended_ = false;
  c10::intrusive_ptr<RingWork> batch_;
  // Those that somebody still holds are told of the end.
  std::vector<c10::weak_intrusive_ptr<RingWork>> parts_;
};

}  // namespace ringccl_torch
