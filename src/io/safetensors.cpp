// safetensors.cpp: see safetensors.h. The header is read as a stream of JSON events, so that nothing of a hostile one
// is built in memory beyond the few levels that the format has.
#include "io/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>

#include "io/output_file.h"

namespace flashtile::io {
namespace {

constexpr std::size_t length_size = 8;
constexpr std::size_t max_header = 100'000'000;  // as the format's own library has it
constexpr std::size_t max_rank = 64;
constexpr std::size_t alignment = 64;  // of the values in what is written here

struct TypeName {
    std::string_view name;
    DType dtype;
};
constexpr std::array<TypeName, 9> type_names = {{{"F64", DType::fp64},
                                                 {"F32", DType::fp32},
                                                 {"F16", DType::fp16},
                                                 {"BF16", DType::bf16},
                                                 {"F8_E4M3", DType::e4m3},
                                                 {"BOOL", DType::boolean},
                                                 {"I64", DType::int64},
                                                 {"I32", DType::int32},
                                                 {"U8", DType::uint8}}};

// A name from the file as it may be shown on a terminal: quoted, escaped, not too long.
std::string shown(const std::string& text) {
    constexpr std::size_t longest = 120;
    const std::string all =
        nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
    return all.size() <= longest ? all : all.substr(0, longest) + "...";
}

struct Entry {
    std::string name;
    std::string type;
    std::vector<std::int64_t> shape;
    std::vector<std::uint64_t> offsets;  // begin, end
};

// The header's events, in the order in which the JSON parser meets them. A handler that returns false ends the parse,
// with the reason in `problem`.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
public:
    std::vector<Entry> entries;
    std::map<std::string, std::string> metadata;
    std::string problem;

    bool start_object(std::size_t) override {
        switch (where_) {
            case Where::start:
                where_ = Where::top;
                return true;
            case Where::entry_value:
                where_ = Where::entry;
                seen_ = {};
                entries.push_back({.name = name_, .type = {}, .shape = {}, .offsets = {}});
                return true;
            case Where::metadata_value:
                where_ = Where::metadata;
                return true;
            default:
                return unexpected("an object");
        }
    }

    bool key(string_t& text) override {
        if (where_ == Where::top) {
            name_ = text;
            if (!names_.emplace(text, true).second) return stop(fmt::format("the name {} stands twice", shown(text)));
            where_ = text == "__metadata__" ? Where::metadata_value : Where::entry_value;
            return true;
        }
        if (where_ == Where::metadata) {
            metadata_key_ = text;
            if (metadata.contains(text)) return stop(fmt::format("__metadata__ has {} twice", shown(text)));
            where_ = Where::metadata_text;
            return true;
        }
        const auto field = std::ranges::find(fields, text, &Field::name);
        if (field == fields.end())
            return stop(fmt::format("tensor {} has the unknown key {}", shown(name_), shown(text)));
        if (std::exchange(seen_[static_cast<std::size_t>(field - fields.begin())], true))
            return stop(fmt::format("tensor {} has {} twice", shown(name_), text));
        where_ = field->where;
        return true;
    }

    bool end_object() override {
        if (where_ == Where::metadata) {
            where_ = Where::top;
            return true;
        }
        if (where_ == Where::top) {
            where_ = Where::end;
            return true;
        }
        if (!std::ranges::all_of(seen_, std::identity()))
            return stop(fmt::format("tensor {} lacks dtype, shape or data_offsets", shown(name_)));
        where_ = Where::top;
        return true;
    }

    bool start_array(std::size_t) override {
        if (where_ == Where::shape_value)
            where_ = Where::shape;
        else if (where_ == Where::offsets_value)
            where_ = Where::offsets;
        else
            return unexpected("an array");
        return true;
    }

    bool end_array() override {
        if (where_ == Where::offsets && entries.back().offsets.size() != 2)
            return stop(fmt::format("tensor {}: data_offsets has {} numbers, allowed is 2", shown(name_),
                                    entries.back().offsets.size()));
        where_ = Where::entry;
        return true;
    }

    bool string(string_t& text) override {
        if (where_ == Where::type_value) {
            entries.back().type = text;
            where_ = Where::entry;
        } else if (where_ == Where::metadata_text) {
            metadata.emplace(metadata_key_, text);
            where_ = Where::metadata;
        } else {
            return unexpected("a string");
        }
        return true;
    }

    bool number_unsigned(number_unsigned_t value) override {
        if (where_ == Where::offsets && entries.back().offsets.size() < 3) {
            entries.back().offsets.push_back(value);
            return true;
        }
        if (where_ != Where::shape) return unexpected("a number");
        if (value > INT64_MAX) return stop(fmt::format("tensor {}: a size is {}", shown(name_), value));
        if (entries.back().shape.size() == max_rank)
            return stop(fmt::format("tensor {} has more than {} dimensions", shown(name_), max_rank));
        entries.back().shape.push_back(static_cast<std::int64_t>(value));
        return true;
    }

    bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
    bool number_float(number_float_t, const string_t&) override { return unexpected("a fraction"); }
    bool boolean(bool) override { return unexpected("true or false"); }
    bool null() override { return unexpected("null"); }
    bool binary(binary_t&) override { return unexpected("binary data"); }

    bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
        return stop(fmt::format("it is not JSON at byte {}", position));
    }

private:
    enum class Where {
        start,
        top,
        entry_value,
        entry,
        type_value,
        shape_value,
        shape,
        offsets_value,
        offsets,
        metadata_value,
        metadata,
        metadata_text,
        end
    };
    struct Field {
        std::string_view name;
        Where where;
    };
    static constexpr std::array<Field, 3> fields = {
        {{"dtype", Where::type_value}, {"shape", Where::shape_value}, {"data_offsets", Where::offsets_value}}};

    bool stop(const std::string& what) {
        problem = what;
        return false;
    }

    bool unexpected(const char* what) {
        if (where_ == Where::start) return stop(fmt::format("it is {}, allowed is an object", what));
        return stop(fmt::format("{} has {} where none may stand", shown(name_), what));
    }

    Where where_ = Where::start;
    std::string name_, metadata_key_;
    std::map<std::string, bool> names_;
    std::array<bool, 3> seen_{};
};

// Tensors lie one after the other: no overlap, no hole, nothing after the last.
void check_offsets(std::vector<const Entry*> entries, std::size_t data_size, const std::string& file_name) {
    std::ranges::sort(entries, {}, [](const Entry* e) { return std::pair(e->offsets[0], e->offsets[1]); });
    const auto fail = [&](const std::string& what) {
        throw FileError(fmt::format("{}: malformed .safetensors: {}", file_name, what));
    };
    std::uint64_t end = 0;
    for (const Entry* entry : entries) {
        const auto at =
            fmt::format("tensor {}: data_offsets is [{}]", shown(entry->name), fmt::join(entry->offsets, ", "));
        if (entry->offsets[1] < entry->offsets[0]) fail(at + ", which ends before it begins");
        if (entry->offsets[1] > data_size)
            throw FileError(fmt::format("{}: truncated .safetensors: {}, and the file holds {} bytes of values",
                                        file_name, at, data_size));
        if (entry->offsets[0] < end) fail(at + ", which overlaps another tensor");
        if (entry->offsets[0] > end) fail(at + fmt::format(", which leaves a hole after byte {}", end));
        end = entry->offsets[1];
    }
    if (end != data_size)
        fail(fmt::format("the tensors end at byte {}, and the file holds {} bytes of values", end, data_size));
}

}  // namespace

SafetensorsContent parse_safetensors(std::span<const std::byte> file, const std::string& file_name) {
    const auto fail = [&](const std::string& what) { throw FileError(fmt::format("{}: {}", file_name, what)); };
    if (file.size() < length_size) fail(fmt::format("truncated .safetensors: {} bytes hold no header", file.size()));
    std::uint64_t length = 0;
    std::memcpy(&length, file.data(), length_size);
    if (length > max_header)
        fail(
            fmt::format("not a .safetensors file, or a malformed one: the header's length is {}, allowed is at most {}",
                        length, max_header));
    if (length > file.size() - length_size)
        fail(fmt::format("truncated .safetensors: the header should have {} bytes, the file has {} more", length,
                         file.size() - length_size));

    const auto* text = reinterpret_cast<const char*>(file.data()) + length_size;
    // The JSON parser takes a zero byte for the end, whatever follows.
    if (const auto* zero = std::find(text, text + length, '\0'); zero != text + length)
        fail(fmt::format("malformed .safetensors: the header: it is not JSON at byte {}", zero - text + 1));
    HeaderReader reader;
    if (!nlohmann::json::sax_parse(text, text + length, &reader))
        fail("malformed .safetensors: the header: " + reader.problem);

    const auto values = file.subspan(length_size + length);
    std::vector<const Entry*> entries;
    for (const Entry& entry : reader.entries) entries.push_back(&entry);
    check_offsets(entries, values.size(), file_name);

    SafetensorsContent content;
    content.metadata = std::move(reader.metadata);
    for (const Entry& entry : reader.entries) {
        const auto* type = std::ranges::find(type_names, entry.type, &TypeName::name);
        if (type == type_names.end()) {
            content.unreadable.emplace(entry.name, entry.type);
            continue;
        }
        const auto expected = checked_bytes(entry.shape, size_of(type->dtype));
        const std::uint64_t present = entry.offsets[1] - entry.offsets[0];
        if (!expected || *expected != present)
            fail(fmt::format("malformed .safetensors: tensor {}: shape {} of {} takes {} bytes, data_offsets give {}",
                             shown(entry.name), to_string(entry.shape), entry.type,
                             expected ? std::to_string(*expected) : "more than 2^63", present));
        content.tensors.emplace(entry.name, Array{type->dtype, entry.shape, values.data() + entry.offsets[0]});
    }
    return content;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : name_(path.string()), file_(path), content_(parse_safetensors(file_.bytes(), name_)) {}

const Array& SafetensorsFile::at(const std::string& name) const {
    if (const auto found = content_.tensors.find(name); found != content_.tensors.end()) return found->second;
    if (const auto found = content_.unreadable.find(name); found != content_.unreadable.end()) {
        std::string types;
        for (const auto& type : type_names) types += fmt::format("{}{}", types.empty() ? "" : ", ", type.name);
        throw FileError(
            fmt::format("{}: tensor {} is of type {}, allowed is {}", name_, shown(name), shown(found->second), types));
    }
    constexpr std::size_t most = 20;
    std::vector<std::string> names;
    for (const auto& [other, array] : content_.tensors) {
        if (names.size() == most) {
            names.push_back(fmt::format("and {} more", content_.tensors.size() - most));
            break;
        }
        names.push_back(shown(other));
    }
    throw FileError(fmt::format("{}: there is no tensor {}; there is {}", name_, shown(name),
                                names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "))));
}

std::string safetensors_header(const NamedArrays& tensors) {
    auto description = nlohmann::ordered_json::object();
    std::size_t begin = 0;
    for (const auto& [name, array] : tensors) {
        const auto* type = std::ranges::find(type_names, array.dtype, &TypeName::dtype);
        const std::size_t end = begin + array.bytes();
        description[name] = {{"dtype", type->name}, {"shape", array.shape}, {"data_offsets", {begin, end}}};
        begin = end;
    }
    std::string text = description.dump();
    text.append((alignment - (length_size + text.size()) % alignment) % alignment, ' ');
    const std::uint64_t length = text.size();
    std::string header(length_size, '\0');
    std::memcpy(header.data(), &length, length_size);
    return header + text;
}

void write_safetensors(const std::filesystem::path& path, const NamedArrays& tensors) {
    const std::string header = safetensors_header(tensors);
    std::size_t bytes = header.size();
    for (const auto& [name, array] : tensors) bytes += array.bytes();
    OutputFile file(path, bytes);
    std::byte* to = file.bytes().data();
    std::memcpy(to, header.data(), header.size());
    to += header.size();
    for (const auto& [name, array] : tensors) {
        if (array.bytes() != 0) std::memcpy(to, array.data, array.bytes());
        to += array.bytes();
    }
    file.flush();
    file.commit();
}

}  // namespace flashtile::io
