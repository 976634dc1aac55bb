// sanitizers.h: which sanitizer the tests are built with, for what a sanitizer's own work makes meaningless. A test
// asks here; a filter of its caller would be replaced by a second one on the command line.
#pragma once

namespace flashtile::unit {

// gcc says it by macros, clang by __has_feature.
#if defined(__SANITIZE_ADDRESS__)
#define FLASHTILE_ADDRESS_SANITIZER 1
#elif defined(__SANITIZE_THREAD__)
#define FLASHTILE_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FLASHTILE_ADDRESS_SANITIZER 1
#elif __has_feature(thread_sanitizer)
#define FLASHTILE_THREAD_SANITIZER 1
#endif
#endif

#if defined(FLASHTILE_ADDRESS_SANITIZER)
inline constexpr bool kAddressSanitizer = true;
#else
inline constexpr bool kAddressSanitizer = false;
#endif
#if defined(FLASHTILE_THREAD_SANITIZER)
inline constexpr bool kThreadSanitizer = true;
#else
inline constexpr bool kThreadSanitizer = false;
#endif

}  // namespace flashtile::unit
