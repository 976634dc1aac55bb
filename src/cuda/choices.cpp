// choices.cpp: see choices.h.
#include "cuda/choices.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>

#include "core/error.h"
#include "cuda/choices_file.h"
#include "cuda/jit/disk_cache.h"
#include "cuda/jit/nvrtc.h"
#include "flashtile/version.h"

namespace flashtile::gpu {
namespace {

using List = std::vector<Choice>;

// Never destroyed: a call may come as late as a static destructor.
struct State {
    std::mutex mutex;
    bool read = false;
    List choices;
    std::string why_not;
    std::vector<std::unique_ptr<const List>> published;  // a call may still be planning from an older one
};

State& state() {
    static auto* once = new State;
    return *once;
}

// What each device's calls plan from; null: to be made.
std::vector<std::atomic<const List*>>& published_for() {
    static auto* all = new std::vector<std::atomic<const List*>>(static_cast<std::size_t>(device_count()));
    return *all;
}

// The rest wants the mutex held.

void read_once() {
    State& s = state();
    if (s.read) return;
    s.read = true;
    if (const char* off = std::getenv("FLASHTILE_NO_CHOICES"); off != nullptr && *off != '\0') {
        s.why_not = "FLASHTILE_NO_CHOICES is set";
        return;
    }
    ChoiceLines file = read_choices(cache_folder());
    s.why_not = std::move(file.why_not);
    for (const std::string& line : file.lines)
        if (auto choice = parse_choice(line)) s.choices.push_back(*std::move(choice));
}

List those_on(const DeviceFacts& device) {
    read_once();
    List list;
    const std::string name = choice_device(device);
    std::ranges::copy_if(state().choices, std::back_inserter(list), [&](const Choice& choice) {
        return choice.device == name && choice.version == FLASHTILE_VERSION_STRING;
    });
    if (!list.empty() && !why_no_nvrtc().empty()) list.clear();
    return list;
}

void plan_anew() {
    if (!why_no_driver().empty()) return;
    for (auto& list : published_for()) list.store(nullptr, std::memory_order_release);
}

bool replaces(const Choice& a, const Choice& b) {
    return a.version == b.version && a.device == b.device && a.subject == b.subject;
}

void write(const std::function<void(std::vector<std::string>&)>& edit) {
    const std::string why_not = edit_choices(cache_folder(), edit);
    if (!why_not.empty())
        throw Error(FLASHTILE_INVALID_ARGUMENT,
                    "the choices in " + (cache_folder() / kChoicesFile).string() + " cannot be written: " + why_not);
}

}  // namespace

Choices choices_for(const Device& device) {
    auto& slot = published_for()[static_cast<std::size_t>(device.ordinal())];
    if (const List* known = slot.load(std::memory_order_acquire)) return *known;
    const std::lock_guard lock(state().mutex);
    state().published.push_back(std::make_unique<const List>(those_on(device.facts())));
    slot.store(state().published.back().get(), std::memory_order_release);
    return *state().published.back();
}

List choices_on(const DeviceFacts& device) {
    const std::lock_guard lock(state().mutex);
    return those_on(device);
}

void use_choice(std::string_view text, bool keep) {
    const std::optional<Choice> choice = parse_choice(text);
    if (!choice)
        throw Error(FLASHTILE_INVALID_ARGUMENT,
                    "choice is '" + std::string(text) + "', allowed is a line that flashtile_plan_report gives");
    const std::lock_guard lock(state().mutex);
    read_once();
    std::erase_if(state().choices, [&](const Choice& old) { return replaces(*choice, old); });
    state().choices.push_back(*choice);
    plan_anew();
    if (!keep) return;
    write([&](std::vector<std::string>& lines) {
        std::erase_if(lines, [&](const std::string& line) {
            const auto old = parse_choice(line);
            return old && replaces(*choice, *old);
        });
        lines.push_back(to_text(*choice));
    });
}

void forget_choices(bool kept) {
    const std::lock_guard lock(state().mutex);
    state().read = true;
    state().choices.clear();
    plan_anew();
    if (kept) write([](std::vector<std::string>& lines) { lines.clear(); });
}

ChoicesState choices_state() {
    const std::lock_guard lock(state().mutex);
    read_once();
    return {cache_folder() / kChoicesFile, state().why_not, state().choices};
}

}  // namespace flashtile::gpu
