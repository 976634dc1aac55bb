// fixed_list.h: a list with room for a stated number of elements: a plan is made at every call, which should allocate
// nothing.
#pragma once

#include <array>
#include <cstddef>

namespace flashtile {

template <class T, std::size_t most>
class FixedList {
public:
    // Throws out_of_range where there is no room: the number is too small for what a candidate launches.
    void push_back(const T& element) {
        elements_.at(count_) = element;
        ++count_;
    }
    std::size_t size() const { return count_; }
    bool empty() const { return count_ == 0; }
    const T& operator[](std::size_t n) const { return elements_[n]; }
    const T* begin() const { return elements_.data(); }
    const T* end() const { return elements_.data() + count_; }

private:
    std::array<T, most> elements_{};
    std::size_t count_ = 0;
};

}  // namespace flashtile
