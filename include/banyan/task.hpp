// Coroutines that searches are written as. Knows no session: plain lazy tasks. Layer 7.
//
// A Task<T> starts when it is awaited (or given to Session::start) and hands its result, or its exception, to the one
// who waits. Destroying a Task destroys its frame and all that lives in it: nodes are given back and open wishes are
// withdrawn, so that is how a search is cancelled. Threads: one; tasks are resumed by the session's loop only.
#pragma once

#include <cassert>
#include <coroutine>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

namespace banyan {

template <class T>
class Task;

namespace detail {

struct TaskPromiseBase {
  std::coroutine_handle<> continuation;
  std::exception_ptr error;

  struct FinalAwaiter {
    bool await_ready() const noexcept { return false; }
    template <class Promise>
    std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> self) const noexcept {
      const auto next = self.promise().continuation;
      return next ? next : std::noop_coroutine();
    }
    void await_resume() const noexcept {}
  };
  std::suspend_always initial_suspend() const noexcept { return {}; }
  FinalAwaiter final_suspend() const noexcept { return {}; }
  void unhandled_exception() noexcept { error = std::current_exception(); }
};

template <class T>
struct TaskPromise : TaskPromiseBase {
  std::optional<T> value;
  Task<T> get_return_object();
  template <class U>
  void return_value(U&& v) {
    value.emplace(std::forward<U>(v));
  }
  T take() {
    if (error) std::rethrow_exception(error);
    return std::move(*value);
  }
};

template <>
struct TaskPromise<void> : TaskPromiseBase {
  Task<void> get_return_object();
  void return_void() const noexcept {}
  void take() const {
    if (error) std::rethrow_exception(error);
  }
};

}  // namespace detail

template <class T = void>
class [[nodiscard]] Task {
 public:
  using promise_type = detail::TaskPromise<T>;
  using Handle = std::coroutine_handle<promise_type>;

  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  Task(const Task&) = delete;
  Task& operator=(const Task&) = delete;
  ~Task() {
    if (handle_) handle_.destroy();
  }

  auto operator co_await() const noexcept {
    struct Awaiter {
      Handle handle;
      bool await_ready() const noexcept { return handle.done(); }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<> waiter) const noexcept {
        handle.promise().continuation = waiter;
        return handle;
      }
      T await_resume() const { return handle.promise().take(); }
    };
    assert(handle_);
    return Awaiter{handle_};
  }

  Handle handle() const { return handle_; }

 private:
  Handle handle_;
};

namespace detail {

template <class T>
Task<T> TaskPromise<T>::get_return_object() {
  return Task<T>(std::coroutine_handle<TaskPromise<T>>::from_promise(*this));
}
inline Task<void> TaskPromise<void>::get_return_object() {
  return Task<void>(std::coroutine_handle<TaskPromise<void>>::from_promise(*this));
}

// Starts every task and suspends until the last of them is done. Its counters end suspended at their final point, so
// the last one may hand over to the waiter, who destroys them.
template <class T>
class AllAwaiter {
 public:
  explicit AllAwaiter(std::vector<Task<T>>& tasks) : tasks_(tasks) {}

  bool await_ready() const noexcept { return tasks_.empty(); }
  bool await_suspend(std::coroutine_handle<> waiter) {
    n_open_ = tasks_.size();
    counters_.reserve(tasks_.size());
    for (auto& t : tasks_) counters_.push_back(count(*this, t));
    for (auto& c : counters_) c.handle.resume();
    if (n_open_ == 0) return false;  // all were done without a step
    waiter_ = waiter;
    return true;
  }
  void await_resume() const noexcept {}

 private:
  struct Counter {
    struct promise_type {
      AllAwaiter& all;
      promise_type(AllAwaiter& a, Task<T>&) : all(a) {}
      Counter get_return_object() { return Counter{std::coroutine_handle<promise_type>::from_promise(*this)}; }
      std::suspend_always initial_suspend() const noexcept { return {}; }
      auto final_suspend() const noexcept {
        struct Last {
          bool await_ready() const noexcept { return false; }
          std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> self) const noexcept {
            auto& a = self.promise().all;
            return --a.n_open_ == 0 && a.waiter_ ? a.waiter_ : std::coroutine_handle<>(std::noop_coroutine());
          }
          void await_resume() const noexcept {}
        };
        return Last{};
      }
      void return_void() const noexcept {}
      void unhandled_exception() const noexcept { std::terminate(); }
    };
    explicit Counter(std::coroutine_handle<promise_type> h) : handle(h) {}
    Counter(Counter&& other) noexcept : handle(std::exchange(other.handle, nullptr)) {}
    Counter(const Counter&) = delete;
    Counter& operator=(const Counter&) = delete;
    ~Counter() {
      if (handle) handle.destroy();
    }
    std::coroutine_handle<promise_type> handle;
  };
  // Runs a task to its end; its result or exception stays in it, for its owner.
  struct Done {
    typename Task<T>::Handle handle;
    bool await_ready() const noexcept { return handle.done(); }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> waiter) const noexcept {
      handle.promise().continuation = waiter;
      return handle;
    }
    void await_resume() const noexcept {}
  };
  static Counter count(AllAwaiter& /*all*/, Task<T>& task) {
    Done done{task.handle()};
    co_await done;
  }

  std::vector<Task<T>>& tasks_;
  std::vector<Counter> counters_;
  std::size_t n_open_ = 0;
  std::coroutine_handle<> waiter_;
};

}  // namespace detail

// Runs the tasks side by side: their wishes go into the same steps. Results stand in the tasks' order; the first
// exception (in that order) is thrown after all have ended.
template <class T>
Task<std::vector<T>> all(std::vector<Task<T>> tasks) {
  detail::AllAwaiter<T> awaiter(tasks);
  co_await awaiter;
  std::vector<T> results;
  results.reserve(tasks.size());
  for (auto& t : tasks) results.push_back(t.handle().promise().take());
  co_return results;
}

}  // namespace banyan
