// case_list.cpp: the named cases, by what they are meant to find.
#include "conformance/case_list.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>
#include <utility>

namespace flashtile::conformance {
namespace {

constexpr dtype kTypes[] = {fp32, fp16, bf16};

dtype type_of(std::size_t n) {
    return kTypes[n % 3];
}

class List {
public:
    std::vector<Case> build() {
        lengths();
        unequal_lengths();
        head_dims();
        wide_pairs();
        many_heads();
        option_pairs();
        empty_rows();
        hiding_bias();
        large_bias();
        bias_blocks();
        packed_edges();
        nothing_to_do();
        magnitudes();
        memory();
        long_sequences();
        full_grids();
        jumping_scores();
        caches();
        latents();
        serving_options();
        prefixes();
        prefixes_of_many();
        shards();
        shards_of_sequences();
        functions();
        wide_pairs_with_options();
        block_lists();
        e4m3_sizes();
        e4m3_caches();
        e4m3_options();
        outputs_in_fp32();
        narrow_values();
        return std::move(cases_);
    }

private:
    Case& add(const std::string& name) {
        Case& c = cases_.emplace_back();
        c.name = name;
        c.data_seed = cases_.size();
        return c;
    }

    static void size(Case& c, std::int64_t seqlen_q, std::int64_t seqlen_k, std::int64_t heads, std::int64_t head_dim) {
        c.seqlen_q = seqlen_q;
        c.seqlen_k = seqlen_k;
        c.heads = c.kv_heads = heads;
        c.head_dim = c.head_dim_v = head_dim;
    }

    // Every length from 1 to past two tiles.
    void lengths() {
        for (std::int64_t n = 1; n <= 150; ++n) {
            Case& c = add("length/" + std::to_string(n));
            size(c, n, n, 1, n % 2 == 0 ? 8 : 24);
            c.type = type_of(static_cast<std::size_t>(n));
            c.causal = n / 3 % 2 == 0;
            c.threads = 1 + static_cast<int>(n % 2);
        }
        for (const std::int64_t n : {191, 192, 193, 255, 256, 257, 263, 300, 383, 384, 385}) {
            for (const dtype type : kTypes) {
                Case& c = add("length/" + std::to_string(n) +
                              (type == fp32   ? "_fp32"
                               : type == fp16 ? "_fp16"
                                              : "_bf16"));
                size(c, n, n, 1, 16);
                c.type = type;
                c.causal = type == fp16;
                c.threads = 2;
            }
        }
    }

    // seqlen_q above and below seqlen_k, primes, each alignment of causal.
    void unequal_lengths() {
        const std::int64_t pairs[][2] = {{1, 2},   {2, 1},   {1, 67},  {67, 1},   {3, 131},  {131, 3},  {31, 37},
                                         {37, 31}, {61, 97}, {97, 61}, {63, 129}, {129, 63}, {17, 257}, {257, 17}};
        std::size_t n = 0;
        for (const auto& [q, k] : pairs)
            for (const causal_mode causal : {causal_mode(false), bottom_right, top_left}) {
                Case& c = add("unequal/" + std::to_string(q) + "x" + std::to_string(k) + "_causal" +
                              std::to_string(causal.value));
                size(c, q, k, 2, 32);
                c.type = type_of(n++);
                c.causal = causal;
            }
    }

    void head_dims() {
        std::size_t n = 0;
        for (const std::int64_t d :
             {1,  2,  3,  4,   5,   7,   8,   9,   15,  16,  17,  23,  24,  31,  32,  33,  40,  47,  48,  63,  64, 65,
              72, 80, 96, 100, 112, 127, 128, 129, 160, 191, 192, 200, 255, 256, 257, 320, 384, 448, 509, 511, 512})
            for (int turn = 0; turn < 2; ++turn) {
                Case& c = add("head_dim/" + std::to_string(d) + (turn == 0 ? "" : "_other_v"));
                size(c, 35, 71, 2, d);
                c.type = type_of(n++);
                if (turn == 1) c.head_dim_v = 1 + (d * 37 + 11) % 512;
                c.causal = d % 2 == 0;
            }
        for (const dtype type : kTypes)
            for (const std::int64_t d : {64, 128, 192, 256, 512}) {
                Case& c = add("head_dim/" + std::to_string(d) + "_type" + std::to_string(static_cast<int>(type)));
                size(c, 77, 83, 1, d);
                c.type = type;
                c.causal = true;
            }
    }

    struct WideShape {
        std::int64_t q, k, heads, kv_heads, d, dv;
        causal_mode causal;
        window_size window;
    };
    void wide_shapes(const std::string& group, std::initializer_list<WideShape> list) {
        std::size_t n = 0;
        for (const WideShape& shape : list) {
            Case& c = add(group + "/" + std::to_string(n++));
            size(c, shape.q, shape.k, shape.heads, shape.d);
            c.kv_heads = shape.kv_heads;
            c.head_dim_v = shape.dv;
            c.batch = n == 2 ? 2 : 1;
            c.type = n % 2 == 0 ? fp16 : bf16;
            c.causal = shape.causal;
            c.window = shape.window;
        }
    }

    // Heads so wide that pairs of Hopper's thread blocks share 128 keys: pairs whose second half is empty, full or cut,
    // bands that see one half only, and many steps.
    void wide_pairs() {
        wide_shapes("wide_pairs", {{70, 65, 1, 1, 256, 256, false, {}},
                                   {200, 192, 2, 1, 256, 256, false, {}},
                                   {450, 300, 1, 1, 200, 248, false, {}},
                                   {333, 320, 3, 1, 256, 256, bottom_right, {}},
                                   {64, 256, 1, 1, 256, 256, top_left, {}},
                                   {300, 128, 1, 1, 224, 200, bottom_right, {}},
                                   {250, 290, 1, 1, 256, 256, false, {30, 5}},
                                   {130, 400, 2, 2, 200, 256, false, {0, 70}}});
    }

    void many_heads() {
        std::size_t n = 0;
        for (const auto& [heads, kv_heads] : {std::pair{1, 1}, {2, 1}, {3, 3}, {6, 2}, {8, 1}, {16, 4}, {40, 8}})
            for (const std::int64_t batch : {1, 3}) {
                Case& c = add("heads/" + std::to_string(heads) + "_" + std::to_string(kv_heads) + "_batch" +
                              std::to_string(batch));
                size(c, 33, 41, heads, 16);
                c.kv_heads = kv_heads;
                c.batch = batch;
                c.type = type_of(n++);
                c.threads = 1 + static_cast<int>(n % 3);
            }
        // Few queries, whose heads may share a tile: whole ones, parts of one, and groups that are no power of two.
        for (const std::int64_t group : {2, 3, 7, 8, 64})
            for (const std::int64_t seqlen_q : {1, 3, 17, 64}) {
                Case& c = add("heads/group" + std::to_string(group) + "_few" + std::to_string(seqlen_q));
                size(c, seqlen_q, 150, 2 * group, n % 4 == 1 ? 128 : 64);
                c.kv_heads = 2;
                c.batch = 2;
                c.type = type_of(n++);
                c.causal = n % 2 == 0;
                if (n % 5 == 0) c.window.left = 40;
                if (n % 7 == 0) c.softcap = 3.0f;
                if (n % 4 == 0) c.used_k = {149, 70};
            }
        // Gradients of a group's keys, which two thread blocks may make together, or where there are many of them not.
        n = 0;
        for (const std::int64_t d : {64, 128, 40})
            for (const bool causal : {false, true})
                for (const std::int64_t group : {2, 8}) {
                    Case& c = add("heads/shared" + std::to_string(n));
                    size(c, 150, 290, 2 * group, d);
                    c.kv_heads = 2;
                    c.type = n % 3 == 0 ? fp16 : bf16;
                    c.causal = causal;
                    c.with_dlse = n % 2 == 0;
                    c.deterministic = n % 5 == 0;
                    if (n % 4 == 1) c.dropout = 0.2;
                    if (n % 4 == 2) c.used_k = {211};
                    if (n % 4 == 3 && d > 64) c.softcap = 3.0f;
                    ++n;
                }
        Case& many = add("heads/shared_by_many");
        size(many, 130, 130, 24, 16);
        many.kv_heads = many.batch = 12;
        many.type = bf16;
        many.causal = true;
        // dk and dv are sums over eight thousand queries.
        Case& c = add("heads/large_group");
        size(c, 250, 3, 32, 16);
        c.kv_heads = 1;
        c.type = fp32;
    }

    struct Option {
        const char* name;
        void (*apply)(Case&);
    };

    static std::vector<Option> all_options() {
        return {
            {"causal", [](Case& c) { c.causal = true; }},
            {"causal_top_left", [](Case& c) { c.causal = top_left; }},
            {"window",
             [](Case& c) {
                 c.window = {20, 13};
             }},
            {"window_left", [](Case& c) { c.window.left = 9; }},
            {"window_right", [](Case& c) { c.window.right = 7; }},
            {"align_top_left", [](Case& c) { c.align_top_left = true; }},
            {"diagonal", [](Case& c) { c.diagonal = -31; }},
            {"scale", [](Case& c) { c.scale = 0.37f; }},
            {"softcap", [](Case& c) { c.softcap = 1.7f; }},
            {"alibi", [](Case& c) { c.slopes = Slopes::per_head; }},
            {"alibi_batch", [](Case& c) { c.slopes = Slopes::per_batch_and_head; }},
            {"bias", [](Case& c) { c.bias.present = true; }},
            {"bias_keys",
             [](Case& c) {
                 c.bias = {.present = true, .spans = {false, false, false, true}, .rank = 1};
             }},
            {"bias_rows",
             [](Case& c) {
                 c.bias = {.present = true, .spans = {true, false, true, false}};
             }},
            {"bias_fp32",
             [](Case& c) {
                 c.bias = {.present = true, .spans = {false, true, true, true}, .rank = 3};
                 c.bias_in_fp32 = true;
             }},
            {"mask", [](Case& c) { c.mask.present = true; }},
            {"mask_keys",
             [](Case& c) {
                 c.mask = {.present = true, .spans = {true, false, false, true}};
             }},
            {"mask_sparse",
             [](Case& c) {
                 c.mask = {.present = true, .spans = {false, false, true, true}, .rank = 2};
                 c.mask_density = 0.02;
             }},
            {"dropout",
             [](Case& c) {
                 c.dropout = 0.3;
                 c.seed = 0x123456789ABCDEFu;
                 c.offset = 0xFEDCBA9876543210u;
             }},
            {"packed",
             [](Case& c) {
                 c.lengths_q = {19, 0, 70, 1};
                 c.lengths_k = {33, 5, 93, 0};
                 c.spare_rows = 3;
             }},
            {"seqused",
             [](Case& c) {
                 c.used_k = {17, 93, 0, 5};
             }},
            {"gqa", [](Case& c) { c.heads = 4; }},
            {"dv", [](Case& c) { c.head_dim_v = 47; }},
            {"dlse", [](Case& c) { c.with_dlse = true; }},
            {"bhsd", [](Case& c) { c.inputs.heads_before_rows = c.outputs.heads_before_rows = true; }},
            {"sliced",
             [](Case& c) {
                 c.inputs.row_gap = 5;
                 c.outputs.row_gap = 3;
             }},
            {"same_batch", [](Case& c) { c.inputs.broadcast_first = true; }},
            {"same_heads", [](Case& c) { c.inputs.broadcast_heads = true; }},
            {"deterministic", [](Case& c) { c.deterministic = true; }},
            {"batch_invariant", [](Case& c) { c.batch_invariant = true; }},
            {"exact_max", [](Case& c) { c.exact_max = true; }},
            {"threads", [](Case& c) { c.threads = 3; }},
            {"large", [](Case& c) { c.magnitude_qk = 4.0; }},
        };
    }

    static void fit_used_keys(Case& c) {
        if (c.used_k.empty()) return;
        c.used_k.resize(static_cast<std::size_t>(c.sequences()));
        for (std::size_t b = 0; b < c.lengths_k.size(); ++b) c.used_k[b] = std::min(c.used_k[b], c.lengths_k[b]);
    }

    // Each option with each other.
    void option_pairs() {
        const auto options = all_options();
        for (std::size_t a = 0; a < options.size(); ++a)
            for (std::size_t b = 0; b <= a; ++b) {
                Case& c = add(std::string("options/") + options[b].name + "+" + options[a].name);
                size(c, 70, 93, 2, 32);
                c.batch = 2;
                c.type = type_of(a + b);
                options[b].apply(c);
                options[a].apply(c);
                fit_used_keys(c);
            }
    }

    void empty_rows() {
        std::size_t n = 0;
        const auto each_type = [&](const std::string& name, auto apply) {
            for (const dtype type : kTypes) {
                Case& c = add("empty_rows/" + name + "_" + std::to_string(n++));
                size(c, 75, 50, 2, 16);
                c.type = type;
                c.with_dlse = true;
                apply(c);
            }
        };
        each_type("causal", [](Case& c) { c.causal = true; });
        each_type("window", [](Case& c) { c.window = {3, 2}; });
        each_type("window_of_none", [](Case& c) {
            size(c, 40, 100, 2, 16);
            c.window = {0, 0};
            c.align_top_left = true;
        });
        each_type("mask_hides_all", [](Case& c) {
            c.mask.present = true;
            c.mask_density = 0.0;
        });
        each_type("mask_of_rows", [](Case& c) {
            c.mask = {.present = true, .spans = {true, true, true, false}};
            c.mask_density = 0.5;
        });
        each_type("none_used", [](Case& c) {
            c.batch = 3;
            c.used_k = {0, 50, 1};
        });
    }

    // finfo.min and -inf in the bias, as attention masks of that kind have.
    void hiding_bias() {
        std::size_t n = 0;
        for (const BiasValues values : {BiasValues::lowest_hides, BiasValues::infinity_hides})
            for (const bool rows : {false, true})
                for (const dtype type : kTypes)
                    for (const bool in_fp32 : {false, true}) {
                        Case& c = add("hiding_bias/" + std::to_string(n++));
                        size(c, 45, 70, 2, 24);
                        c.type = type;
                        c.bias = {.present = true, .spans = {true, true, true, !rows}};
                        c.bias_values = values;
                        c.bias_in_fp32 = in_fp32;
                        c.softcap = n % 4 == 0 ? 3.0f : 0.0f;
                    }
    }

    // Scores that are all but the bias, which fp32 holds exactly: a roundoff of scores of 100 would show. And -1e10,
    // which hides a key (GPT-2's mask) while a row of nothing else sees them all: there fp32 rounds by hundreds, which
    // must stay out of P.
    void large_bias() {
        std::size_t n = 0;
        for (const bool rows : {false, true})
            for (const dtype type : {fp32, bf16}) {
                Case& c = add("large_bias/" + std::to_string(n++));
                size(c, 45, 70, 2, 24);
                c.type = type;
                c.bias = {.present = true, .spans = {true, true, true, !rows}};
                c.bias_values = BiasValues::large;
                c.magnitude_qk = 1e-9;
            }
    }

    // Several blocks of queries and keys, and rows of the bias that start at multiples of 16 bytes: TMA brings them
    // to Hopper's kernels where the tensors are aligned.
    void bias_blocks() {
        const std::vector<std::function<void(Case&)>> changes = {
            [](Case&) {},
            [](Case& c) { c.causal = true; },
            [](Case& c) {
                c.bias.spans = {false, true, true, true}, c.window = {100, 30};
            },
            [](Case& c) {
                c.bias = {.present = true, .spans = {false, false, true, true}, .expanded = true};
            },
            [](Case& c) {
                c.bias.spans = {true, false, true, true}, c.slopes = Slopes::per_head, c.softcap = 2.0f;
            },
            [](Case& c) { c.mask.present = true, c.bias_values = BiasValues::infinity_hides; },
            [](Case& c) {
                c.lengths_q = {134, 1}, c.lengths_k = {200, 7}, c.bias_values = BiasValues::large;
            },
            [](Case& c) {
                c.used_k = {150, 0};
            },
        };
        std::size_t n = 0;
        for (const std::int64_t head_dim : {64, 128, 256})
            for (const auto& change : changes) {
                Case& c = add("bias_blocks/" + std::to_string(n++));
                size(c, 134, 200, 2, head_dim);
                c.batch = 2;
                c.kv_heads = 1;
                c.type = n % 2 == 0 ? fp16 : bf16;
                c.bias.present = true;
                change(c);
            }
    }

    // One key, which the walk from the last block comes to late, with scores far above all others: by a few doublings,
    // and by more than fp32's exponent holds.
    void jumping_scores() {
        std::size_t n = 0;
        for (const dtype type : kTypes)
            for (const std::int64_t head_dim : {64, 128})
                for (const double factor : {8.0, 60.0})
                    for (const bool causal : {false, true}) {
                        Case& c = add("jumping_scores/" + std::to_string(n++));
                        size(c, 300, 530, 2, head_dim);
                        c.type = type;
                        c.causal = causal;
                        c.early_key = factor;
                    }
    }

    void packed_edges() {
        std::size_t n = 0;
        const auto packed = [&](std::vector<std::int64_t> q, std::vector<std::int64_t> k, auto apply) {
            for (const dtype type : kTypes) {
                Case& c = add("packed/" + std::to_string(n++));
                c.heads = c.kv_heads = 2;
                c.type = type;
                c.lengths_q = q;
                c.lengths_k = k;
                c.wide_lengths = n % 2 == 0;
                c.threads = 1 + static_cast<int>(n % 3);
                apply(c);
            }
        };
        packed({1}, {1}, [](Case&) {});
        packed({0, 0, 5}, {0, 3, 5}, [](Case&) {});
        packed({5, 0, 0}, {5, 0, 4}, [](Case& c) { c.spare_rows = 1; });
        packed({7, 3, 130, 64, 1}, {7, 3, 130, 64, 1}, [](Case& c) { c.causal = true; });
        packed({64, 64, 64}, {128, 32, 1}, [](Case& c) { c.causal = true; });
        packed({100, 1, 33}, {20, 90, 0}, [](Case& c) {
            c.bias.present = c.mask.present = true;
            c.spare_rows = 9;
        });
        packed({13, 80}, {50, 200}, [](Case& c) {
            c.used_k = {50, 77};
            c.slopes = Slopes::per_batch_and_head;
            c.causal = true;
        });
        packed({1, 1, 1, 1}, {5, 90, 33, 64}, [](Case& c) { c.dropout = 0.5; });
        packed(std::vector<std::int64_t>(24, 3), std::vector<std::int64_t>(24, 4), [](Case&) {});
        // Short and long ones in no order; more than a warp has lanes; heads that share keys.
        packed({3, 260, 0, 129, 40}, {3, 260, 7, 129, 300}, [](Case& c) {
            c.causal = true;
            c.heads = 4;
            c.kv_heads = 2;
            c.spare_rows = 3;
        });
        std::vector<std::int64_t> lengths(37);
        for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<std::int64_t>(i * i * 7 % 31);
        lengths[20] = 300;
        packed(lengths, lengths, [](Case& c) { c.causal = true; });
    }

    void nothing_to_do() {
        std::size_t n = 0;
        for (const auto& [batch, q, k] : {std::array{0, 5, 5}, {2, 0, 5}, {2, 5, 0}, {1, 0, 0}}) {
            Case& c = add("nothing/" + std::to_string(n++));
            size(c, q, k, 2, 16);
            c.batch = batch;
            c.threads = 2;
        }
        Case& c = add("nothing/packed");
        c.lengths_q = {0, 0};
        c.lengths_k = {0, 0};
    }

    void magnitudes() {
        std::size_t n = 0;
        for (const dtype type : kTypes)
            for (const auto& [qk, v] : {std::pair{1e-3, 1e-3}, {8.0, 1.0}, {1.0, 100.0}, {0.1, 30.0}, {16.0, 0.01}}) {
                Case& c = add("magnitude/" + std::to_string(n++));
                size(c, 70, 100, 2, 64);
                c.type = type;
                c.magnitude_qk = qk;
                c.magnitude_v = v;
                c.with_dlse = true;
            }
        for (const dtype type : {fp32, bf16})
            for (const auto& [qk, v] : {std::pair{1e-15, 1e-15}, {40.0, 1e10}, {1e-18, 1e12}}) {
                Case& c = add("magnitude/" + std::to_string(n++));
                size(c, 70, 100, 2, 64);
                c.type = type;
                c.magnitude_qk = qk;
                c.magnitude_v = v;
            }
        for (const dtype type : kTypes)
            for (const float scale : {0.0f, -0.5f, 3.0f}) {
                Case& c = add("scale/" + std::to_string(n++));
                size(c, 40, 60, 2, 16);
                c.type = type;
                c.scale = scale;
                c.causal = true;  // a scale of 0 meets hidden scores
            }
        for (const dtype type : kTypes)
            for (const float softcap : {0.01f, 1.0f, 50.0f, 1e6f}) {
                Case& c = add("softcap/" + std::to_string(n++));
                size(c, 40, 60, 2, 16);
                c.type = type;
                c.softcap = softcap;
                c.magnitude_qk = 2.0;
            }
        for (const dtype type : kTypes)
            for (const double dropout : {1e-5, 0.1, 0.9, 0.99998}) {
                Case& c = add("dropout/" + std::to_string(n++));
                size(c, 67, 131, 3, 16);
                c.batch = 2;
                c.type = type;
                c.dropout = dropout;
                c.seed = n * 0x9E3779B97F4A7C15u;
                c.offset = n;
                c.seed_in_memory = n % 2 == 0;
                c.threads = 2;
            }
    }

    // Tensors that end where memory ends, or start where it starts.
    void memory() {
        std::size_t n = 0;
        for (const Guard guard : {Guard::page_after, Guard::page_before})
            for (const dtype type : kTypes)
                for (const std::int64_t d : {1, 5, 16, 31, 64}) {
                    Case& c = add("memory/" + std::to_string(n++));
                    size(c, 29, 43, 2, d);
                    c.type = type;
                    c.guard = guard;
                    c.causal = n % 2 == 0;
                    if (n % 3 == 0) c.bias.present = c.mask.present = true;
                    if (n % 5 == 0) {
                        c.lengths_q = {13, 16};
                        c.lengths_k = {40, 3};
                    }
                    c.with_dlse = n % 4 == 0;
                }
        for (const dtype type : kTypes)
            for (const std::int64_t size_one : {0, 1, 2, 3, 4}) {
                Case& c = add("memory/size_one_" + std::to_string(n++));
                size(c, size_one == 1 ? 1 : 21, size_one == 2 ? 1 : 37, size_one == 3 ? 1 : 2, size_one == 4 ? 1 : 16);
                c.batch = size_one == 0 ? 1 : 2;
                c.type = type;
                c.inputs.nonsense_strides = c.outputs.nonsense_strides = true;
                c.bias = {.present = true, .spans = {false, true, false, true}};
                c.mask = {.present = true, .spans = {true, false, true, false}};
                c.with_dlse = true;
            }
    }

    void long_sequences() {
        for (const dtype type : kTypes) {
            const std::string suffix = "_type" + std::to_string(static_cast<int>(type));
            Case& c = add("long/causal" + suffix);
            size(c, 1031, 1031, 1, 64);
            c.type = type;
            c.causal = true;
            c.threads = 2;
            Case& d = add("long/window" + suffix);
            size(d, 700, 1500, 1, 32);
            d.type = type;
            d.window = {100, 30};
            d.threads = 2;
            Case& e = add("long/keys" + suffix);
            size(e, 5, 3001, 2, 64);
            e.type = type;
            e.threads = 2;
            Case& f = add("long/queries" + suffix);
            size(f, 2003, 9, 2, 64);
            f.type = type;
            f.threads = 3;
        }
    }

    // More heads, or more sequences, than the 65535 blocks that a GPU's grid has in all dimensions but one.
    void full_grids() {
        for (const bool sequences : {false, true}) {
            Case& c = add(sequences ? "heads/70000_sequences" : "heads/70000");
            size(c, 2, 3, sequences ? 1 : 70000, 4);
            c.batch = sequences ? 70000 : 1;
            c.type = bf16;
            c.threads = 2;
        }
    }

    // Keys in pages of every size from 1 to 300, or in rows that sequences choose, behind dense and packed queries.
    void caches() {
        for (std::int64_t page = 1; page <= 300; ++page) {
            Case& c = add("cache/page" + std::to_string(page));
            size(c, 1 + page % 4, 40 + page * 3 / 2, 2, page % 3 == 0 ? 64 : 24);
            c.heads = page % 2 == 0 ? 2 : 6;
            c.batch = 2;
            c.type = type_of(static_cast<std::size_t>(page));
            c.causal = page % 4 != 0;
            c.cache = {.present = true, .page_size = page, .shared = page % 5 == 0};
            c.used_k = {page % 7 == 0 ? 0 : c.seqlen_k, 1 + page};
            c.threads = 1 + static_cast<int>(page % 3);
        }
        std::size_t n = 0;
        for (const std::int64_t page : {0, 1, 7, 16, 64, 256})
            for (const dtype type : kTypes) {
                const std::string suffix = std::to_string(page) + "_type" + std::to_string(static_cast<int>(type));
                Case& prefill = add("cache/prefill_page" + suffix);
                size(prefill, 150, 333, 2, 40);
                prefill.batch = 2;
                prefill.type = type;
                prefill.causal = true;
                prefill.cache = {.present = true, .page_size = page, .shared = ++n % 2 == 0};
                prefill.used_k = {333, 160};
                prefill.inputs.heads_before_rows = n % 3 == 0;
                Case& mixed = add("cache/mixed_page" + suffix);
                size(mixed, 1, 1, 4, 64);
                mixed.kv_heads = 2;
                mixed.type = type;
                mixed.lengths_q = {1, 100, 0, 3, 1};
                mixed.lengths_k = {700, 260, 40, 90, 0};
                mixed.spare_rows = 2;
                mixed.causal = true;
                mixed.cache = {.present = true, .page_size = page};
                mixed.wide_lengths = n % 2 == 0;
                mixed.batch_invariant = n % 4 == 0;
                mixed.threads = 2;
                Case& wide = add("cache/wide_page" + suffix);
                size(wide, 2, 90, 8, 576);
                wide.kv_heads = 1;
                wide.head_dim_v = 512;
                wide.type = type;
                wide.causal = true;
                wide.cache = {.present = true, .page_size = page};
            }
    }

    // Latent heads (MLA). All tensors start at multiples of 16 bytes, for TMA.
    void latents() {
        const auto latent = [this](const std::string& name, std::int64_t queries, std::int64_t keys, std::int64_t heads,
                                   std::int64_t head_dim, std::int64_t head_dim_v) -> Case& {
            Case& c = add("latent/" + name);
            size(c, queries, keys, heads, head_dim);
            c.kv_heads = 1;
            c.head_dim_v = head_dim_v;
            c.latent = true;
            c.type = bf16;
            c.guard = Guard::page_before;
            return c;
        };
        for (const dtype type : kTypes) {
            const std::string suffix = "_type" + std::to_string(static_cast<int>(type));
            latent("one_query" + suffix, 1, 200, 16, 576, 512).type = type;
            Case& c = latent("more_heads_than_rows" + suffix, 2, 150, 72, 576, 512);
            c.type = type;
            c.causal = true;
        }
        Case& used = latent("used", 3, 260, 20, 576, 512);
        used.batch = 4;
        used.used_k = {130, 0, 1, 259};
        used.causal = true;
        Case& growing = latent("growing_maximum", 2, 700, 16, 576, 512);
        growing.magnitude_qk = 3.0;
        Case& window = latent("window", 70, 300, 4, 512, 512);
        window.window = {100, 10};
        window.softcap = 5.0f;
        Case& grouped = latent("two_key_heads", 5, 129, 6, 448, 384);
        grouped.kv_heads = 2;
        grouped.scale = -0.05f;
        Case& heads = latent("a_head_each", 65, 64, 3, 320, 72);
        heads.kv_heads = 3;
        heads.type = fp16;
        heads.exact_max = true;
        latent("no_keys", 2, 0, 16, 576, 512);
        for (const std::int64_t page : {0, 16, 64, 128}) {
            Case& cache = latent("cache_" + std::to_string(page), 2, 300, 16, 576, 512);
            cache.batch = 3;
            cache.used_k = {300, 64, 129};
            cache.causal = true;
            cache.cache = {.present = true, .page_size = page};
            cache.sinks = page == 64 ? Sinks::in_fp32 : Sinks::none;
        }
        Case& packed = latent("packed_queries", 1, 1, 12, 576, 512);
        packed.lengths_q = {1, 9, 0, 3};
        packed.lengths_k = {400, 90, 30, 3};
        packed.spare_rows = 2;
        packed.causal = true;
        packed.cache = {.present = true, .page_size = 32};
        Case& both = latent("packed", 1, 1, 70, 512, 448);
        both.lengths_q = {3, 1};
        both.lengths_k = {100, 170};
        Case& padded = latent("left_padding", 4, 200, 16, 576, 512);
        padded.batch = 2;
        padded.first_k = {70, 0};
        Case& fewer = latent("fewer_queries", 4, 200, 16, 576, 512);
        fewer.batch = 2;
        fewer.used_q = {2, 4};
        fewer.window = {20, 0};
        Case& prefill = latent("prefill_of_chunks", 80, 180, 4, 576, 512);
        prefill.causal = true;
        prefill.chunk = 50;
    }

    // Sequences that share their first keys: groups of one and of many, prefixes longer than a sequence and of no keys,
    // within a page and over many splits, beside sequences of no group and such with many queries.
    void prefixes() {
        std::size_t n = 0;
        for (const std::int64_t page : {1, 16, 50, 256})
            for (const bool packed : {false, true})
                for (const std::int64_t prefix : {0, 7, 512, 640, 1100}) {
                    Case& c = add("prefix/" + std::to_string(n++));
                    size(c, packed ? 1 : 1 + static_cast<std::int64_t>(n % 4), 1500, 4, n % 3 == 0 ? 64 : 24);
                    c.kv_heads = n % 2 == 0 ? 1 : 2;
                    c.type = type_of(n);
                    c.causal = n % 4 != 0;
                    c.batch = 6;
                    c.cache = {
                        .present = true, .page_size = page, .groups = {0, 4, 5}, .prefixes = {prefix, prefix / 2}};
                    c.used_k = {1500, 1400, prefix + 1, prefix / 3 + 2, 300, 900};
                    if (packed) {
                        c.lengths_q = {1, 3, 40, 1, 1, 2};
                        c.lengths_k = std::exchange(c.used_k, {});
                    }
                    c.batch_invariant = n % 5 == 0;
                    if (n % 7 == 0) c.num_splits = 3, c.batch_invariant = false;
                    if (n % 6 == 0) c.first_k = {3, 0, 600, 1, 0, 20};
                    c.threads = 1 + static_cast<int>(n % 3);
                }
    }

    // Groups whose queries fill several tiles, of which some do not see all of the prefix, beside empty sequences.
    void prefixes_of_many() {
        for (const std::int64_t heads : {2, 8})
            for (const bool packed : {false, true}) {
                const std::int64_t queries = heads == 8 ? 6 : 20;
                Case& c = add("prefix_of_many/" + std::to_string(heads) + (packed ? "_packed" : ""));
                size(c, packed ? 1 : queries, 460, heads, 64);
                c.kv_heads = 2;
                c.type = packed ? fp16 : bf16;
                c.causal = heads == 8 || packed;
                c.batch = 15;
                c.cache = {.present = true, .page_size = 16, .groups = {0, 11, 12, 14}, .prefixes = {300, 129, 21}};
                c.used_k = {460, 0, 300, 320, 321, 305, 450, 7, 330, 340, 350, 1, 20, 460, 400};
                if (packed) {
                    c.lengths_q = {queries, 0, 1, queries, 3, 5, 1, 2, 9, 1, 1, 0, 1, 1, 2};
                    c.lengths_k = std::exchange(c.used_k, {});
                } else if (heads == 8) {
                    c.sinks = Sinks::in_fp32;
                }
            }
    }

    // What serving asks of forward, and the options that change scores.
    static std::vector<Option> all_serving_options() {
        return {
            {"pages", [](Case& c) { c.cache = {.present = true, .page_size = 16}; }},
            {"rows", [](Case& c) { c.cache = {.present = true}; }},
            {"first_k",
             [](Case& c) {
                 c.first_k = {50, 0};
             }},
            {"used_q",
             [](Case& c) {
                 c.used_q = {3, 0};
             }},
            {"used_k",
             [](Case& c) {
                 c.used_k = {201, 60};
             }},
            {"chunk", [](Case& c) { c.chunk = 64; }},
            {"tree", [](Case& c) { c.tree = true; }},
            {"positions", [](Case& c) { c.tree = c.positions = true; }},
            {"prefix",
             [](Case& c) {
                 c.cache = {.present = true, .page_size = 16, .groups = {0, 2}, .prefixes = {150}};
             }},
            {"sinks", [](Case& c) { c.sinks = Sinks::in_fp32; }},
            {"sinks_in_type", [](Case& c) { c.sinks = Sinks::in_the_inputs_type; }},
            {"splits", [](Case& c) { c.num_splits = 3; }},
            {"causal", [](Case& c) { c.causal = true; }},
            {"window",
             [](Case& c) {
                 c.window = {90, 5};
             }},
            {"softcap", [](Case& c) { c.softcap = 1.7f; }},
            {"alibi", [](Case& c) { c.slopes = Slopes::per_batch_and_head; }},
            {"bias", [](Case& c) { c.bias.present = true; }},
            {"mask", [](Case& c) { c.mask.present = true; }},
            {"dropout",
             [](Case& c) {
                 c.dropout = 0.3;
                 c.seed = 7;
             }},
            {"batch_invariant", [](Case& c) { c.batch_invariant = true, c.num_splits = 0; }},
            {"large", [](Case& c) { c.magnitude_qk = 6.0; }},
        };
    }

    // Each with each.
    void serving_options() {
        const std::vector<Option> options = all_serving_options();
        for (std::size_t a = 0; a < options.size(); ++a)
            for (std::size_t b = 0; b <= a; ++b) {
                const std::int64_t seqlen_q = std::array{1, 5, 64}[(2 * a + b) % 3];
                Case& c = add("serving/" + std::to_string(seqlen_q) + "_" + options[b].name + "+" + options[a].name);
                size(c, seqlen_q, 201, 4, 32);
                c.kv_heads = 2;
                c.batch = 2;
                c.type = type_of(a + b + static_cast<std::size_t>(seqlen_q));
                c.with_dlse = a % 2 == 0;
                options[b].apply(c);
                options[a].apply(c);
                if (c.batch_invariant) c.num_splits = 0;
                c.threads = 1 + static_cast<int>(b % 3);
            }
    }

    // What counts from the diagonal.
    static std::vector<Option> shifted_bands() {
        return {
            {"causal", [](Case& c) { c.causal = top_left; }},
            {"causal_bottom_right", [](Case& c) { c.causal = true; }},
            {"window",
             [](Case& c) {
                 c.window = {40, 9}, c.align_top_left = true;
             }},
            {"window_left", [](Case& c) { c.window.left = 60; }},
            {"chunk", [](Case& c) { c.chunk = 64, c.causal = top_left, c.origin.j = 128; }},
            {"alibi", [](Case& c) { c.slopes = Slopes::per_head; }},
        };
    }

    // Parts of a larger problem: diagonals that cross the part anywhere, or pass it by on either side so that all
    // queries see all keys, or none; and dropout that draws by the whole's coordinates, also where neither its rows nor
    // its columns start at a multiple of 16.
    void shards() {
        const std::vector<Option> bands = shifted_bands();
        std::size_t n = 0;
        for (const Option& band : bands)
            for (const std::int64_t diagonal : {-1000000, -150, -37, 1, 90, 262, 1000000})
                for (const std::int64_t seqlen_q : {5, 133}) {
                    Case& c = add("shard/" + std::string(band.name) + "_" + std::to_string(diagonal) + "_" +
                                  std::to_string(seqlen_q));
                    size(c, seqlen_q, 200, 2, n % 3 == 0 ? 24 : 64);
                    c.type = type_of(n);
                    c.kv_heads = 1;
                    c.diagonal = diagonal;
                    band.apply(c);
                    if (c.slopes != Slopes::none) c.diagonal %= 1000;  // scores that fp32 holds
                    c.with_dlse = n % 2 == 0;
                    c.deterministic = n % 4 == 0;
                    if (n % 5 == 4) {
                        c.batch = 2;
                        c.used_k = {170, 33};
                    }
                    c.threads = 1 + static_cast<int>(n++ % 2);
                }
        for (const auto& [i, j] : {std::pair{0, 16}, {48, 32}, {1, 0}, {0, 1}, {8, 24}, {1037, 4091}})
            for (const bool packed : {false, true}) {
                Case& c =
                    add("shard/dropout_" + std::to_string(i) + "_" + std::to_string(j) + (packed ? "_packed" : ""));
                size(c, 75, 140, 2, 64);
                c.type = type_of(n++);
                if (packed) {
                    c.lengths_q = {19, 0, 70, 1};
                    c.lengths_k = {33, 5, 93, 64};
                }
                c.dropout = 0.4;
                c.seed = 99;
                c.origin = {3, 5, i, j};
                c.causal = top_left;
                c.diagonal = 20;
            }
        Case& decoded = add("shard/dropout_decoded");
        size(decoded, 3, 700, 4, 64);
        decoded.kv_heads = 2;
        decoded.cache = {.present = true, .page_size = 16};
        decoded.dropout = 0.4;
        decoded.origin = {0, 2, 13, 7};
        decoded.num_splits = 2;
        // The last row, column, sequence and head that the generator counts to.
        Case& last = add("shard/dropout_last");
        size(last, 35, 40, 2, 16);
        last.dropout = 0.4;
        last.origin = {(1 << 20) - 1, 4094, (std::int64_t{1} << 32) - 35, (std::int64_t{1} << 32) - 40};
    }

    // Sequences that are shards each by itself: by diagonals that cross them or pass them by on either side, with every
    // band and option; and by origins, with dropout.
    void shards_of_sequences() {
        const std::vector<std::int64_t> diagonals = {-37, 90, 1000000, -1000000, 0};
        const auto first = [&](const std::vector<std::int64_t>& of, const Case& c) {
            return std::vector<std::int64_t>(of.begin(), of.begin() + c.sequences());
        };
        const auto draw_by_whole = [&](Case& c, bool i, bool j) {
            const std::int64_t unit = c.chunk != 0 ? c.chunk : 1;
            if (i) c.origins_i = first({13, 0, 4091, 32, 1 << 20}, c);
            if (j) c.origins_j = first({7 * unit, 48 * unit, 0, 1030 * unit, 1}, c);
        };
        std::size_t n = 0;
        for (const Option& band : shifted_bands())
            for (const std::int64_t seqlen_q : {5, 133})
                for (const char* const form : {"dense", "packed", "used", "pages"}) {
                    Case& c = add("shards/" + std::string(band.name) + "_" + std::to_string(seqlen_q) + "_" + form);
                    size(c, seqlen_q, 200, 2, n % 3 == 0 ? 24 : 64);
                    c.type = type_of(n);
                    c.kv_heads = 1;
                    c.batch = 4;
                    if (form == std::string_view("packed")) {
                        c.lengths_q = {seqlen_q, 0, 3, seqlen_q, 70};
                        c.lengths_k = {200, 5, 93, 64, 150};
                    }
                    if (form != std::string_view("dense") && !c.packed()) c.used_k = {170, 33, 200, 91};
                    if (form == std::string_view("pages")) c.cache = {.present = true, .page_size = 16};
                    c.diagonals = first(diagonals, c);
                    band.apply(c);
                    if (c.slopes != Slopes::none)  // scores that fp32 holds
                        for (std::int64_t& diagonal : c.diagonals) diagonal %= 999;
                    if (c.origin.j != 0) c.origins_j.assign(c.diagonals.size(), std::exchange(c.origin.j, 0));
                    c.with_dlse = n % 2 == 0;
                    c.deterministic = n % 4 == 0;
                    c.threads = 1 + static_cast<int>(n++ % 2);
                }
        for (const Option& option : all_options()) {
            Case& c = add("shards/options_" + std::string(option.name));
            size(c, 70, 93, 2, 32);
            c.batch = 2;
            c.type = type_of(n++);
            c.window = {40, 9};
            option.apply(c);
            fit_used_keys(c);
            c.diagonal = 0;
            c.diagonals = first({-31, 44, 0, -5}, c);
            if (c.dropout != 0.0) draw_by_whole(c, true, true);
        }
        for (const Option& option : all_serving_options())
            for (const std::int64_t seqlen_q : {1, 5, 64}) {
                Case& c = add("shards/serving_" + std::to_string(seqlen_q) + "_" + option.name);
                size(c, seqlen_q, 201, 4, 32);
                c.kv_heads = 2;
                c.batch = 2;
                c.type = type_of(n++);
                c.cache = {.present = true, .page_size = 16};
                c.causal = true;
                option.apply(c);
                if (!c.positions) c.diagonals = {-70, 20};
                if (c.dropout != 0.0) draw_by_whole(c, true, true);
            }
        // Sequences whose first keys are shared, of which each sees another part.
        Case& prefix = add("shards/prefix");
        size(prefix, 3, 700, 2, 64);
        prefix.batch = 4;
        prefix.causal = true;
        prefix.cache = {.present = true, .page_size = 16, .groups = {0, 4}, .prefixes = {640}};
        prefix.diagonals = {0, -300, 20, -690};
        for (const auto& [i, j] : {std::pair{true, true}, {true, false}, {false, true}})
            for (const char* const form : {"dense", "packed", "pages"}) {
                Case& c = add("shards/dropout_" + std::string(i ? "i" : "") + (j ? "j" : "") + "_" + form);
                size(c, 75, 140, 2, 64);
                c.type = type_of(n++);
                c.batch = 4;
                if (form == std::string_view("packed")) {
                    c.lengths_q = {19, 0, 70, 1};
                    c.lengths_k = {33, 5, 93, 64};
                }
                if (form == std::string_view("pages")) c.cache = {.present = true, .page_size = 16};
                c.dropout = 0.4;
                c.seed = 99;
                c.origin = {3, 5, i ? 0 : 8, j ? 0 : 17};
                c.deterministic = n % 2 == 0;
                draw_by_whole(c, i, j);
            }
        // Whose all origins are multiples of 16, and few queries, whose keys are split.
        Case& even = add("shards/dropout_even");
        size(even, 75, 140, 2, 64);
        even.batch = 2;
        even.type = bf16;
        even.dropout = 0.4;
        even.origins_i = {16, 320};
        even.origins_j = {0, 48};
        Case& decoded = add("shards/dropout_decoded");
        size(decoded, 3, 700, 4, 64);
        decoded.kv_heads = 2;
        decoded.batch = 2;
        decoded.cache = {.present = true, .page_size = 16};
        decoded.dropout = 0.4;
        decoded.num_splits = 2;
        draw_by_whole(decoded, true, true);
        // The last row and column that the generator counts to.
        Case& last = add("shards/dropout_last");
        size(last, 35, 40, 2, 16);
        last.batch = 2;
        last.dropout = 0.4;
        last.origins_i = {0, (std::int64_t{1} << 32) - 35};
        last.origins_j = {(std::int64_t{1} << 32) - 40, 3};
    }

    // The user's own scores and masks: patterns that people use, each part of the language, and all beside the other
    // options.
    void functions() {
        struct Pattern {
            const char *name, *score, *mask;
        };
        const std::vector<Pattern> patterns = {
            {"alibi", "s - slope[h] * abs(i + (seqlen_k - seqlen_q) - j)", ""},
            {"softcap", "5.0 * tanh(s / 5.0)", ""},
            {"relative_table", "s + table[h, min(max(j - i, -15), 15) + 15]", ""},
            {"clamp", "max(min(s, 1.5), -1.5) + s / 4", ""},
            {"softplus", "log(1.0 + exp(s)) * 1.5", ""},
            {"squash", "s / sqrt(1.0 + s * s)", ""},
            {"hides", "pattern[i // 16 % 4, j // 16 % 4, 0] ? s : -inf", ""},
            {"by_distance", "d = abs(i - j); d < 8 ? s : s * 0.5 - float(d % 7) # further", ""},
            {"constant", "1.25", ""},
            {"several_loads", "t = table[h, i % 31]; s * t + exp(0.3 * t) * table[h, j % 31] - slope[j % 5 * h]", ""},
            {"document", "", "document[b, i] == document[b, j] && i >= j"},
            {"window_with_sinks", "", "j < 4 || (i - j >= 0 && i - j < 24)"},
            {"prefix_lm", "", "j < prefix[b] || i >= j"},
            {"dilated", "", "(i - j) % 3 == 0 && abs(i - j) <= 60"},
            {"blocks", "", "pattern[i // 64 % 4, j // 64 % 4, h % 2]"},
            {"butterfly", "", "x = i // 16 ^ j // 16; (x & x - 1) == 0"},
            {"neighbours_in_2d", "", "abs(i // 16 - j // 16) <= 1 && abs(i % 16 - j % 16) <= 2"},
            {"tree", "", "x = i + 1; y = j + 1; x == y || x >> 1 == y || x >> 2 == y || x >> 3 == y || x >> 4 == y"},
            {"local_blocks_with_strides", "", "x = i // 32 - j // 32; 0 <= x && x < 2 || x >= 0 && x % 4 == 3"},
            {"circle", "", "sqrt(float(i * i + j * j)) < 90.5"},
            {"outside", "", "document[b, i - 20] == document[b, j + 50] || i > 100"},
            {"ints_past_32_bits", "", "(i * 4294967296 + 7) // 4294967296 >= j"},
            {"all", "", "true"},
            {"none", "", "i < 0"},
            {"both", "s * 0.5 + table[h, (i * 7 + j * 3) % 31]", "j <= i + 60 && !(j % 5 == 2)"},
            {"diagonals_that_hide", "s - ((i - j) % 3 == 1 ? inf : table[h, abs(j - i) % 31])", ""},
            {"diagonals_of_both", "s + slope[h] * float(min(i, j + 3) - j)", "i - 7 <= j == j < i + 2 || i == 2 * j"},
        };
        std::size_t n = 0;
        for (const Pattern& pattern : patterns)
            for (const bool unequal : {false, true}) {
                Case& c = add("function/" + std::string(pattern.name) + (unequal ? "_unequal" : ""));
                c.score_function = pattern.score;
                c.mask_function = pattern.mask;
                c.tensor_gradients = true;
                size(c, unequal ? 70 : 150, unequal ? 290 : 150, 4, n % 3 == 0 ? 32 : 64);
                c.kv_heads = 2;
                c.batch = 2;
                c.type = type_of(n);
                c.with_dlse = n % 2 == 0;
                c.deterministic = n % 4 == 1;
                c.inputs.row_gap = n % 2 == 0 ? 3 : 0;
                c.threads = 1 + static_cast<int>(n++ % 2);
            }
        // Blocks that the mask function shows whole, and the band does not.
        for (const dtype type : {fp32, fp16, bf16}) {
            Case& c = add("function/whole_beside_a_window_" + std::to_string(static_cast<int>(type)));
            size(c, 133, 290, 2, 64);
            c.type = type;
            c.mask_function = "i >= 0";
            c.window = {37, 5};
        }
        // What is added moves a score to where one that is hidden would show.
        Case& far = add("function/diagonals_beyond_all_scores");
        size(far, 150, 150, 2, 64);
        far.type = bf16;
        far.score_function = "1e19 * max(0.0, float(i - j - 40)) + s";
        far.mask_function = "max(i, j + 9) - j < 100";
        // Nobody sees a key, and the function divides by what no key is.
        Case& beyond = add("function/beyond_the_last_key");
        size(beyond, 50, 40, 2, 32);
        beyond.mask_function = "i // (j - 39) != 3";
        beyond.window = {10, -1};
        beyond.diagonal = 100;
        // Most blocks hidden, for all heads or not for all.
        for (const bool by_head : {false, true})
            for (const bool packed : {false, true}) {
                Case& c = add(std::string("function/hidden_blocks") + (by_head ? "_by_head" : "") +
                              (packed ? "_packed" : ""));
                size(c, 200, 500, 4, 64);
                c.kv_heads = 2;
                c.type = type_of(n++);
                c.mask_function = by_head ? "h == 1 ? j < 9 : abs(i + 250 - j) < 20" : "abs(i + 250 - j) < 20";
                if (packed) c.lengths_q = {200, 0, 60}, c.lengths_k = {500, 5, 300};
                if (packed) c.window = {300, 200};
            }
        // Blocks of 128 x 128 that are hidden, mixed and shown whole, in several runs, of heads as wide as Hopper's
        // kernels have tiles for.
        const std::vector<std::pair<const char*, void (*)(Case&)>> runs = {
            {"alone", [](Case&) {}},
            {"packed",
             [](Case& c) {
                 c.lengths_q = {390, 0, 130}, c.lengths_k = {520, 7, 300};
             }},
            {"deterministic_causal", [](Case& c) { c.deterministic = true, c.causal = true; }},
            {"score_dropout",
             [](Case& c) { c.score_function = "s + table[h, min(max(j - i, -15), 15) + 15]", c.dropout = 0.2; }},
            {"score_derivative", [](Case& c) { c.score_function = "4.0 * tanh(s / 4.0)"; }},
        };
        for (const auto& [name, apply] : runs)
            for (const std::int64_t d : {64, 128, 192}) {
                Case& c = add("function/runs_of_blocks_" + std::string(name) + "_" + std::to_string(d));
                size(c, 390, 520, 4, d);
                c.kv_heads = 2;
                c.type = n++ % 2 == 0 ? fp16 : bf16;
                c.mask_function = "x = (i // 128 + 2 * (j // 128) + h) % 4; x == 0 || x == 2 && (i + j) % 3 == 0";
                apply(c);
            }
        const std::vector<std::pair<const char*, void (*)(Case&)>> beside = {
            {"packed",
             [](Case& c) {
                 c.lengths_q = {70, 0, 133, 1}, c.lengths_k = {90, 5, 133, 64};
             }},
            {"causal", [](Case& c) { c.causal = true; }},
            {"window",
             [](Case& c) {
                 c.window = {40, 9};
             }},
            {"softcap", [](Case& c) { c.softcap = 1.7f; }},
            {"alibi", [](Case& c) { c.slopes = Slopes::per_head; }},
            {"bias", [](Case& c) { c.bias.present = true; }},
            {"bias_softcap", [](Case& c) { c.bias.present = true, c.softcap = 3.0f, c.bias.spans[2] = false; }},
            {"mask", [](Case& c) { c.mask.present = true; }},
            {"dropout", [](Case& c) { c.dropout = 0.3, c.seed = 7; }},
            {"sinks", [](Case& c) { c.sinks = Sinks::in_fp32; }},
            {"used",
             [](Case& c) {
                 c.used_k = {170, 33};
             }},
            {"scale", [](Case& c) { c.scale = -0.3f; }},
            {"origin",
             [](Case& c) {
                 c.origin = {1, 2, 100, 37};
             }},
            {"batch_invariant", [](Case& c) { c.batch_invariant = true; }},
            {"few_queries", [](Case& c) { c.seqlen_q = 3; }},
            {"pages", [](Case& c) { c.cache = {.present = true, .page_size = 16}, c.seqlen_q = 40; }},
            {"decoded",
             [](Case& c) { c.cache = {.present = true, .page_size = 64}, c.seqlen_q = 1, c.num_splits = 3; }},
        };
        for (const auto& [name, apply] : beside)
            for (const bool score : {true, false}) {
                Case& c = add("function/" + std::string(score ? "score_" : "mask_") + name);
                size(c, 133, 190, 4, 64);
                c.kv_heads = 2;
                c.batch = 2;
                c.type = type_of(n++);
                c.tensor_gradients = score;
                if (score)
                    c.score_function = "s + table[h, min(max(j - i, -15), 15) + 15] * tanh(s)";
                else
                    c.mask_function = "document[b, i] == document[b, j] || j % 8 == h";
                apply(c);
            }
    }

    // wide_pairs with what makes both thread blocks of a pair look lengths up, take turns or hand P over in fp32:
    // sequences whose last pair is half empty or has hidden keys, and such as have none.
    void wide_pairs_with_options() { wide_with_options("wide_pairs", {256, 256}, {200, 200}); }

    // Heads of which Hopper's two consumers have 64 keys each, and whose dK and dV fill the registers: blocks of which
    // one consumer has all keys, and such as the band hides from one.
    void narrow_values() {
        wide_shapes("narrow_values", {{70, 65, 1, 1, 192, 128, false, {}},
                                      {200, 192, 2, 1, 192, 128, false, {}},
                                      {450, 300, 1, 1, 160, 128, false, {}},
                                      {333, 320, 3, 1, 192, 128, bottom_right, {}},
                                      {64, 256, 1, 1, 192, 128, top_left, {}},
                                      {300, 128, 4, 2, 136, 80, bottom_right, {}},
                                      {250, 290, 1, 1, 192, 128, false, {30, 5}},
                                      {130, 400, 2, 2, 192, 64, false, {0, 70}}});
        wide_with_options("narrow_values", {192, 128}, {160, 104});
    }

    void wide_with_options(const std::string& group, std::pair<int, int> often, std::pair<int, int> now_and_then) {
        std::size_t n = 0;
        const auto wide = [&](std::int64_t seqlen_q, std::int64_t seqlen_k, std::int64_t heads, auto apply) {
            const auto& [d, dv] = n % 3 == 0 ? now_and_then : often;
            Case& c = add(group + "/options_" + std::to_string(n++));
            size(c, seqlen_q, seqlen_k, heads, d);
            c.head_dim_v = dv;
            c.type = n % 2 == 0 ? fp16 : bf16;
            apply(c);
            if (c.exact_max) c.name += "_exact_p";  // as racecheck's step knows it
        };
        const auto packed = [&](std::vector<std::int64_t> q, std::vector<std::int64_t> k, auto apply) {
            wide(1, 1, 2, [&](Case& c) {
                c.lengths_q = std::move(q);
                c.lengths_k = std::move(k);
                apply(c);
            });
        };
        wide(300, 450, 2, [](Case& c) { c.deterministic = true, c.kv_heads = 1; });
        wide(390, 390, 2, [](Case& c) { c.deterministic = true, c.causal = true; });
        wide(260, 333, 1, [](Case& c) { c.deterministic = true, c.window = {100, 40}; });
        wide(200, 320, 2, [](Case& c) { c.exact_max = true, c.kv_heads = 1; });
        wide(270, 270, 1, [](Case& c) { c.exact_max = c.deterministic = true, c.causal = true; });
        wide(140, 270, 1, [](Case& c) {
            c.batch = 4;
            c.used_k = {270, 190, 64, 0};
        });
        wide(210, 300, 1, [](Case& c) {
            c.batch = 3;
            c.used_k = {300, 130, 66};
            c.deterministic = c.exact_max = true;
            c.causal = true;
        });
        packed({150, 70, 64, 1}, {150, 65, 192, 70}, [](Case&) {});
        packed({130, 30, 200}, {130, 90, 200}, [](Case& c) { c.causal = true, c.kv_heads = 1; });
        packed({100, 0, 140}, {64, 70, 310}, [](Case& c) {
            c.deterministic = true;
            c.window = {90, 0};
            c.spare_rows = 5;
        });
        packed({90, 150, 80}, {200, 150, 130}, [](Case& c) {
            c.used_k = {140, 100, 0};
            c.exact_max = c.deterministic = true;
            c.causal = true;
        });
    }

    // Lists of blocks: sizes that tiles do not share, lists of one's own and shared ones, full blocks in which the mask
    // function does not count, and all beside the other options.
    void block_lists() {
        struct Shape {
            const char* name;
            BlockListsSpec blocks;
        };
        const std::vector<Shape> shapes = {
            {"64", {64, 64}},
            {"64_by_head", {.block_q = 64, .block_k = 64, .per_head = true, .full = true}},
            {"128", {.block_q = 128, .block_k = 128, .per_sequence = true, .per_head = true, .full = true}},
            {"64x192", {.block_q = 64, .block_k = 192, .per_sequence = true}},
            {"192x64", {.block_q = 192, .block_k = 64, .full = true}},
            {"1024", {.block_q = 1024, .block_k = 1024, .full = true}},
        };
        std::size_t n = 0;
        for (const Shape& shape : shapes)
            for (const bool masked : {false, true}) {
                Case& c = add(std::string("blocks/") + shape.name + (masked ? "_masked" : ""));
                size(c, 333, 450, 4, n % 3 == 0 ? 128 : 64);
                c.kv_heads = 2;
                c.batch = 2;
                c.type = type_of(n);
                c.blocks = shape.blocks;
                if (masked) c.mask_function = "i + 90 >= j || j % 7 == h";
                c.inputs.row_gap = n % 2 == 0 ? 3 : 0;
                c.deterministic = n % 4 == 1;
                c.threads = 1 + static_cast<int>(n++ % 2);
            }
        const std::vector<std::pair<const char*, void (*)(Case&)>> beside = {
            {"packed",
             [](Case& c) {
                 c.lengths_q = {170, 0, 233, 1, 64}, c.lengths_k = {290, 5, 233, 264, 128};
             }},
            {"causal", [](Case& c) { c.causal = true; }},
            {"causal_deterministic", [](Case& c) { c.causal = true, c.deterministic = true; }},
            {"window",
             [](Case& c) {
                 c.window = {90, 9};
             }},
            {"softcap", [](Case& c) { c.softcap = 1.7f; }},
            {"alibi", [](Case& c) { c.slopes = Slopes::per_head; }},
            {"bias", [](Case& c) { c.bias.present = true, c.bias.spans[0] = false; }},
            {"mask", [](Case& c) { c.mask.present = true; }},
            {"dropout", [](Case& c) { c.dropout = 0.3, c.seed = 7; }},
            {"sinks", [](Case& c) { c.sinks = Sinks::in_fp32; }},
            {"used",
             [](Case& c) {
                 c.used_k = {270, 33};
             }},
            {"diagonals",
             [](Case& c) {
                 c.causal = true, c.diagonals = {-100, 40};
             }},
            {"origin",
             [](Case& c) {
                 c.origin = {1, 2, 100, 37};
             }},
            {"score",
             [](Case& c) {
                 c.score_function = "s + table[h, min(max(j - i, -15), 15) + 15] * tanh(s)", c.tensor_gradients = true;
             }},
            {"batch_invariant", [](Case& c) { c.batch_invariant = true; }},
            {"few_queries", [](Case& c) { c.seqlen_q = 3, c.seqlen_k = 700; }},
            {"short", [](Case& c) { c.seqlen_q = 70, c.seqlen_k = 130; }},
            {"pages", [](Case& c) { c.cache = {.present = true, .page_size = 16}, c.seqlen_q = 80; }},
            {"decoded",
             [](Case& c) { c.cache = {.present = true, .page_size = 64}, c.seqlen_q = 1, c.num_splits = 3; }},
        };
        for (const auto& [name, apply] : beside) {
            Case& c = add(std::string("blocks/") + name);
            size(c, 233, 290, 4, 64);
            c.kv_heads = 2;
            c.batch = 2;
            c.type = type_of(n++);
            c.blocks = {.block_q = 64, .block_k = 64, .per_sequence = true, .per_head = n % 2 == 0, .full = true};
            c.mask_function = "document[b, i] == document[b, j] || j % 8 == h";
            apply(c);
        }
    }

    // Every kind of scale, beside e4m3 queries or 16-bit ones.
    static E4m3Spec e4m3_of(std::size_t n) {
        constexpr Scaling kScalings[] = {Scaling::none, Scaling::whole, Scaling::heads, Scaling::blocks};
        const E4m3Spec spec = {.present = true,
                               .keys_only = n % 2 == 0,
                               .q = kScalings[n / 2 % 4],
                               .k = kScalings[(n + 1) % 4],
                               .v = kScalings[(n / 2 + 3) % 4],
                               .block = n / 3 % 2 == 0 ? 64 : 128};
        return spec.settled();
    }
    static dtype e4m3_type_of(std::size_t n) { return n % 2 == 0 ? kTypes[1 + n / 2 % 2] : kTypes[n / 2 % 3]; }

    // Lengths around blocks of scales and of keys, and head dimensions of whole and of cut vectors.
    void e4m3_sizes() {
        std::size_t n = 0;
        for (const std::int64_t seqlen_q : {1, 7, 64, 65, 200})
            for (const std::int64_t seqlen_k : {1, 63, 64, 65, 129, 257, 400})
                for (int turn = 0; turn < 2; ++turn) {
                    Case& c = add("e4m3/" + std::to_string(seqlen_q) + "x" + std::to_string(seqlen_k) +
                                  (turn == 0 ? "" : "_again"));
                    size(c, seqlen_q, seqlen_k, 4, n % 3 == 0 ? 64 : n % 3 == 1 ? 128 : 96);
                    c.kv_heads = n % 4 < 2 ? 2 : 1;
                    c.batch = 2;
                    c.e4m3 = e4m3_of(n);
                    c.type = e4m3_type_of(n);
                    c.causal = n / 5 % 2 == 0;
                    c.threads = 1 + static_cast<int>(n % 3);
                    ++n;
                }
        for (const std::int64_t d : {1, 8, 24, 32, 33, 48, 80, 100, 112, 160, 192, 256, 512})
            for (const std::int64_t seqlen_q : {3, 70})
                for (const std::int64_t d_v : {d, (d * 37 + 11) % 256 + 1}) {
                    Case& c = add("e4m3_head_dim/" + std::to_string(d) + "_" + std::to_string(d_v) + "_" +
                                  std::to_string(seqlen_q));
                    size(c, seqlen_q, 150, 2, d);
                    c.head_dim_v = d_v;
                    c.e4m3 = e4m3_of(n);
                    c.type = e4m3_type_of(n++);
                }
    }

    void e4m3_caches() {
        constexpr std::int64_t kHeadDims[] = {64, 128, 256, 192};
        std::size_t n = 0;
        for (const std::int64_t page_size : {0, 1, 16, 64, 100, 128, 256})
            for (const std::int64_t seqlen_q : {1, 4, 65})
                for (const Scaling scaling : {Scaling::none, Scaling::whole, Scaling::heads, Scaling::blocks}) {
                    Case& c = add("e4m3_cache/" + std::to_string(page_size) + "_" + std::to_string(seqlen_q) + "_" +
                                  std::to_string(static_cast<int>(scaling)));
                    size(c, seqlen_q, 500, 8, kHeadDims[(n + n / 12) % 4]);  // over all pages, each with each scaling
                    c.kv_heads = 2;
                    c.batch = 3;
                    c.cache = {.present = true, .page_size = page_size, .shared = n % 5 == 0};
                    c.used_k = {500, 131, 7};
                    c.causal = n % 2 == 0;
                    c.e4m3 = {.present = true,
                              .keys_only = n % 3 != 0,
                              .q = n % 2 == 0 ? scaling : Scaling::whole,
                              .k = scaling,
                              .v = scaling,
                              .block = n / 2 % 2 == 0 ? 64 : 128};
                    c.type = type_of(1 + n % 2);
                    if (n % 4 == 3) {
                        c.lengths_q = {seqlen_q, 0, 1};
                        c.lengths_k = std::exchange(c.used_k, {});
                    }
                    ++n;
                }
    }

    // Each option beside them.
    void e4m3_options() {
        std::size_t n = 0;
        const auto add_each = [&](const std::vector<Option>& options, std::int64_t seqlen_q, std::int64_t seqlen_k) {
            for (const Option& option : options)
                for (const bool keys_only : {false, true}) {
                    Case& c = add("e4m3_options/" + std::to_string(seqlen_q) + "_" + option.name +
                                  (keys_only ? "_under_16_bits" : ""));
                    size(c, seqlen_q, seqlen_k, 4, 64);
                    c.kv_heads = 2;
                    c.batch = 2;
                    c.e4m3 = {.present = true,
                              .keys_only = keys_only,
                              .q = Scaling::blocks,
                              .k = Scaling::blocks,
                              .v = n % 3 == 0 ? Scaling::whole : Scaling::blocks};
                    c.type = type_of(1 + n++ % 2);
                    option.apply(c);
                    fit_used_keys(c);
                }
        };
        add_each(all_options(), 70, 193);
        add_each(all_serving_options(), 5, 201);
        for (const bool score : {true, false}) {
            Case& c = add(score ? "e4m3_options/score_function" : "e4m3_options/mask_function");
            size(c, 70, 193, 4, 64);
            c.e4m3 = {.present = true, .q = Scaling::blocks, .k = Scaling::blocks, .v = Scaling::blocks};
            c.type = bf16;
            if (score)
                c.score_function = "s - 0.1 * abs(i - j)";
            else
                c.mask_function = "j % 8 == h || j <= i";
        }
    }

    void outputs_in_fp32() {
        std::size_t n = 0;
        for (const std::int64_t seqlen_q : {1, 5, 64, 150})
            for (const std::int64_t d : {40, 64, 128})
                for (const bool packed : {false, true}) {
                    Case& c = add("out_in_fp32/" + std::to_string(seqlen_q) + "_" + std::to_string(d) +
                                  (packed ? "_packed" : ""));
                    size(c, seqlen_q, 170, 2, d);
                    c.kv_heads = 1;
                    c.out_in_fp32 = true;
                    c.type = type_of(1 + n % 2);
                    c.e4m3.present = c.e4m3.keys_only = n++ % 3 == 0;
                    if (packed) {
                        c.lengths_q = {seqlen_q, 0, 3};
                        c.lengths_k = {170, 1, 64};
                    }
                }
    }

    std::vector<Case> cases_;
};

}  // namespace

const std::vector<Case>& named_cases() {
    static const std::vector<Case> cases = List().build();
    return cases;
}

const Case* find_case(const std::string& name) {
    const auto& cases = named_cases();
    const auto found = std::find_if(cases.begin(), cases.end(), [&](const Case& c) { return c.name == name; });
    return found == cases.end() ? nullptr : &*found;
}

}  // namespace flashtile::conformance
