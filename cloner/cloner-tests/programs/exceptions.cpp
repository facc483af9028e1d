// C++: exceptions thrown through several frames, thread_local objects with destructors, containers, std::thread,
// futures.
//
//   exceptions STEPS
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static std::atomic<int> destroyed;

struct Local {
    std::map<std::string, uint64_t> counts;
    ~Local() { destroyed++; }
};

static thread_local Local local;

struct Unwound {
    uint64_t &count;
    ~Unwound() { count++; }
};

static void fall(int depth, uint64_t &unwound, uint64_t value) {
    Unwound here{unwound};
    if (depth == 0) {
        throw std::runtime_error(std::to_string(value));
    }
    fall(depth - 1, unwound, value);
}

static uint64_t work(uint64_t me, long steps) {
    uint64_t sum = me, unwound = 0;
    for (long step = 0; step < steps; step++) {
        try {
            fall(10, unwound, sum % 1000003);
        } catch (const std::exception &error) {
            sum = sum * 6364136223846793005ULL + std::stoull(error.what());
            local.counts[std::string("key-") + error.what()] += step;
        }
        if (local.counts.size() > 1000) {
            for (auto &[key, count] : local.counts) {
                sum ^= count + key.size();
            }
            local.counts.clear();
        }
    }
    return sum + unwound;
}

int main(int count, char **arguments) {
    long steps = count > 1 ? std::atol(arguments[1]) : 1000;
    std::printf("running\n");
    std::fflush(stdout);
    std::vector<std::thread> threads;
    std::vector<uint64_t> results(3);
    for (uint64_t i = 0; i < 3; i++) {
        threads.emplace_back([&, i] { results[i] = work(i, steps); });
    }
    auto later = std::async(std::launch::async, work, 99, steps);
    for (auto &thread : threads) {
        thread.join();
    }
    while (std::getchar() != EOF) {
    }
    for (auto result : results) {
        std::printf("%016lx\n", static_cast<unsigned long>(result));
    }
    std::printf("%016lx\n", static_cast<unsigned long>(later.get()));
    std::printf("destroyed %d\ndone\n", destroyed.load());
}
