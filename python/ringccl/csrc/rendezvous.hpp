// How the ranks of a process group find each other through torch's store.
//
// The store of an elastic job outlives its attempts, and one of a program the groups that were destroyed, so what an
// earlier attempt has left must not be taken for an answer. Each rank asks with a number of its own:
//
//   rank r   set  ask/r = nonce            wait for  answer/nonce = id
//   rank 0   again and again: get ask/r; whenever it has changed, set answer/nonce = id; until all have joined
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "work.hpp"

namespace ringccl_torch {

inline std::string new_nonce() {
  std::random_device random;
  return c10::str(random(), "-", random(), "-", random());
}

// Rank 0's part: a rendezvous, and a thread that tells its id to whoever asks.
class Host {
 public:
  Host(c10::intrusive_ptr<c10d::Store> store, int size) : store_(std::move(store)), seen_(size) {
    auto status = ringccl_root_new(id_, &root_);
    if (status != RINGCCL_OK) std::rethrow_exception(backend_error(c10::str("ringccl: ", ringccl_last_error())));
    if (size > 1) thread_ = std::thread([this] { answer(); });
  }

  ~Host() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      over_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
    ringccl_root_free(root_);
  }

  const uint8_t* id() const { return id_; }

 private:
  void answer() {
    auto pause = Millis(1);
    for (;;) {
      try {
        if (look()) pause = Millis(1);
      } catch (const std::exception&) {
        // The others will say that they have waited in vain; the store may also come back.
      }
      std::unique_lock<std::mutex> lock(mutex_);
      if (wake_.wait_for(lock, pause, [this] { return over_; })) return;
      pause = std::min(pause * 2, Millis(16));
    }
  }

  // Answers those that have asked since the last look; whether there were any.
  bool look() {
    bool any = false;
    for (size_t rank = 1; rank < seen_.size(); ++rank) {
      auto key = c10::str("ask/", rank);
      if (!store_->check({key})) continue;
      auto nonce = store_->get_to_str(key);
      if (nonce == seen_[rank] || nonce.size() > 64) continue;
      store_->set("answer/" + nonce, std::vector<uint8_t>(id_, id_ + RINGCCL_ID_BYTES));
      seen_[rank] = nonce;
      any = true;
    }
    return any;
  }

  c10::intrusive_ptr<c10d::Store> store_;
  std::vector<std::string> seen_;
  uint8_t id_[RINGCCL_ID_BYTES] = {};
  ringccl_root* root_ = nullptr;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::thread thread_;
};

// What the other ranks do: the id of rank 0's rendezvous.
inline std::vector<uint8_t> ask(c10d::Store& store, int rank, Millis timeout) {
  auto nonce = new_nonce();
  auto answer = "answer/" + nonce;
  std::vector<uint8_t> id;
  try {
    store.set(c10::str("ask/", rank), nonce);
    store.wait({answer}, timeout);
    id = store.get(answer);
    store.deleteKey(answer);
  } catch (const c10::Error& error) {
    if (id.empty()) {
      std::rethrow_exception(backend_error(c10::str(
          "ringccl: rank ", rank, " Timed out waiting ", timeout.count(), "ms for rank 0 to say through the store where ",
          "they meet: see what rank 0 printed last (", error.what_without_backtrace(), ")")));
    }
    // The answer is here; stores that keep it do no harm.
  }
  TORCH_CHECK(id.size() == RINGCCL_ID_BYTES, "ringccl: rank ", rank, ": an id of ", id.size(), " bytes in the store");
  return id;
}

// Makes the communicator of rank `rank` of `size`.
inline std::shared_ptr<Comm> join(c10::intrusive_ptr<c10d::Store> store, int rank, int size, Millis timeout,
                                  bool reports) {
  auto ns = static_cast<uint64_t>(std::chrono::nanoseconds(timeout).count());
  ringccl_options options = {ns, ns, reports ? 1u : 0u, 0};
  ringccl_comm* raw = nullptr;
  ringccl_status status;
  if (rank == 0) {
    Host host(std::move(store), size);
    status = ringccl_comm_join(host.id(), 0, static_cast<uint32_t>(size), &options, &raw);
  } else {
    auto id = ask(*store, rank, timeout);
    status = ringccl_comm_join(id.data(), static_cast<uint32_t>(rank), static_cast<uint32_t>(size), &options, &raw);
  }
  if (status != RINGCCL_OK) {
    auto late = status == RINGCCL_TIMEOUT ? "Timed out joining: " : "";
    std::rethrow_exception(
        backend_error(c10::str("ringccl: rank ", rank, " of ", size, " cannot join: ", late, ringccl_last_error())));
  }
  return std::make_shared<Comm>(raw);
}

}  // namespace ringccl_torch
