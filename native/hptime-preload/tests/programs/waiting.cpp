// Condition variables wait by the kernel's clock while everything else asks the shim's: they have to agree.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>
#include <vector>

using namespace std::chrono;
using namespace std::chrono_literals;

int main() {
    constexpr auto tolerance = 20us;
    std::mutex mutex;
    std::condition_variable changed;
    std::atomic<int> early{0}, late{0}, back{0}, timeouts{0};
    std::atomic<long> newest{0};
    int turn = 0;
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; number++)
        threads.emplace_back([&, number] {
            for (int round = 0; round < 100; round++) {
                {
                    std::unique_lock lock(mutex);
                    auto until = steady_clock::now() + 1ms;
                    // Nobody makes this true: it ends at its time, by both clocks.
                    changed.wait_until(lock, until, [] { return false; });
                    timeouts++;
                    if (steady_clock::now() < until - tolerance) early++;
                    auto date = system_clock::now() + 1ms;
                    changed.wait_until(lock, date, [] { return false; });
                    if (system_clock::now() < date - tolerance) early++;
                    if (system_clock::now() > date + 5s) late++;
                }
                auto until = steady_clock::now() + 300us;
                std::this_thread::sleep_until(until);
                if (steady_clock::now() < until) early++;
                for (int read = 0; read < 200; read++) {
                    long known = newest.load();
                    long now = steady_clock::now().time_since_epoch().count();
                    if (now < known) back++;
                    while (known < now && !newest.compare_exchange_weak(known, now)) {}
                }
                std::unique_lock lock(mutex);
                if (!changed.wait_for(lock, 20s, [&] { return turn % 4 == number; })) late++;
                turn++;
                changed.notify_all();
            }
        });
    for (auto& thread : threads) thread.join();
    std::printf("turns %d timeouts %d early %d late %d back %d\n", turn, timeouts.load(), early.load(), late.load(), back.load());
}
