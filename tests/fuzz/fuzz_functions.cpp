// fuzz_functions.cpp: any text as a score or mask function, on a problem of a few rows: it is refused or run, and
// neither reads outside of its tensors, whose ends the sanitizer watches.
#include <cstddef>
#include <cstdint>
#include <flashtile/flashtile.hpp>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace flashtile;
    constexpr std::size_t kMostTexts = 20000;  // a process keeps those that were right
    static std::size_t texts = 0;
    if (size == 0 || ++texts > kMostTexts) return 0;
    const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
    std::vector<float> rows(3 * 2 * 4, 0.25f), out(rows.size()), lse(6), gradient(rows.size()), table(6, 1.5f);
    std::vector<std::int64_t> list = {0, 1, 2};
    const auto like_q = [](std::vector<float>& x) { return view(x.data(), fp32, {1, 3, 2, 4}); };
    const tensor lse_view = view(lse.data(), fp32, {1, 2, 3});
    const std::vector<flashtile_named_tensor> tensors = {named("t", view(table.data(), fp32, {2, 3})),
                                                         named("x", view(list.data(), dtype::int64, {3}))};
    options o;
    (data[0] % 2 == 0 ? o.score_function : o.mask_function) = text.c_str();
    o.function_tensors = tensors;
    o.threads = 1;
    try {
        forward(o, like_q(rows), like_q(rows), like_q(rows), like_q(out), lse_view);
        std::vector<float> dk(rows.size()), dv(rows.size());
        backward(o, like_q(rows), like_q(rows), like_q(rows), like_q(out), lse_view, like_q(rows), like_q(gradient),
                 like_q(dk), like_q(dv));
    } catch (const error&) {
        return 0;
    }
    return 0;
}
