// other_user.h: root may read and write everything: while this lives, a test that root runs is another user's. A test
// that anybody else runs stays who it is.
#pragma once

#include <unistd.h>

namespace flashtile::tests {

class OtherUser {
public:
    OtherUser() : before_(::geteuid()), other_(before_ != 0 || ::seteuid(65534) == 0) {}
    OtherUser(const OtherUser&) = delete;
    OtherUser& operator=(const OtherUser&) = delete;
    ~OtherUser() { static_cast<void>(::seteuid(before_) == 0); }

    explicit operator bool() const { return other_; }

private:
    uid_t before_;
    bool other_;
};

}  // namespace flashtile::tests
