// choices.cpp: see choices.h.
#include "cuda/choices.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "core/environment.h"
#include "core/error.h"
#include "core/per_process.h"
#include "cuda/choices_file.h"
#include "cuda/jit/disk_cache.h"
#include "cuda/jit/nvrtc.h"
#include "flashtile/version.h"

namespace flashtile::gpu {
namespace {

using List = std::vector<Choice>;

// The choices of this process at some time. Whoever changes them publishes new ones, so that nobody waits for a lock,
// which another thread might hold when the process forks; the old ones stay, since a call may still be planning from
// them.
struct Snapshot {
    List choices;
    std::string why_not;  // the file is not used
    const Snapshot* before = nullptr;
};
constinit std::atomic<const Snapshot*> current{nullptr};  // null: the file has not been read

Snapshot from_file() {
    if (!environment("FLASHTILE_NO_CHOICES").empty()) return {{}, "FLASHTILE_NO_CHOICES is set"};
    ChoiceLines file = read_choices(cache_folder());
    Snapshot read{{}, std::move(file.why_not)};
    for (const std::string& line : file.lines)
        if (auto choice = parse_choice(line)) read.choices.push_back(*std::move(choice));
    return read;
}

// Publishes what `next` makes of the present snapshot, or of null.
template <class Next>
const Snapshot& publish(Next next) {
    const Snapshot* before = current.load(std::memory_order_acquire);
    while (true) {
        auto fresh = std::make_unique<Snapshot>(next(before));
        fresh->before = before;
        if (current.compare_exchange_weak(before, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
    }
}

const Snapshot& snapshot() {
    if (const Snapshot* known = current.load(std::memory_order_acquire)) return *known;
    return publish([](const Snapshot* before) { return before != nullptr ? *before : from_file(); });
}

List those_on(const DeviceFacts& device, const List& choices) {
    List list;
    const std::string name = choice_device(device);
    std::ranges::copy_if(choices, std::back_inserter(list), [&](const Choice& choice) {
        return choice.device == name && choice.version == FLASHTILE_VERSION_STRING;
    });
    if (!list.empty() && !why_no_nvrtc().empty()) list.clear();
    return list;
}

// What a device's calls plan from: those of a snapshot that are its own.
struct Published {
    const Snapshot* of;
    List list;
    const Published* before;
};
struct PublishedLists {
    std::vector<std::atomic<const Published*>> of_device =
        std::vector<std::atomic<const Published*>>(static_cast<std::size_t>(device_count()));
};
constinit PerProcess<PublishedLists> published;

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
    auto& slot = published.get().of_device[static_cast<std::size_t>(device.ordinal())];
    const Snapshot& now = snapshot();
    const Published* known = slot.load(std::memory_order_acquire);
    if (known != nullptr && known->of == &now) return known->list;
    auto fresh = std::make_unique<Published>(Published{&now, those_on(device.facts(), now.choices), known});
    while (!slot.compare_exchange_weak(fresh->before, fresh.get(), std::memory_order_acq_rel)) {
    }
    return fresh.release()->list;
}

List choices_on(const DeviceFacts& device) {
    return those_on(device, snapshot().choices);
}

void use_choice(std::string_view text, bool keep) {
    const std::optional<Choice> choice = parse_choice(text);
    if (!choice)
        throw Error(FLASHTILE_INVALID_ARGUMENT,
                    "choice is '" + std::string(text) + "', allowed is a line that flashtile_plan_report gives");
    publish([&](const Snapshot* before) {
        Snapshot next = before != nullptr ? *before : from_file();
        std::erase_if(next.choices, [&](const Choice& old) { return replaces(*choice, old); });
        next.choices.push_back(*choice);
        return next;
    });
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
    publish([](const Snapshot* before) { return Snapshot{{}, before != nullptr ? before->why_not : ""}; });
    if (kept) write([](std::vector<std::string>& lines) { lines.clear(); });
}

ChoicesState choices_state() {
    const Snapshot& now = snapshot();
    return {cache_folder() / kChoicesFile, now.why_not, now.choices};
}

}  // namespace flashtile::gpu
