// signals_blocked.h: while an object of this type lives, the calling thread takes no signals. Threads that it starts
// meanwhile never take any: the process's signals are for threads that expect them.
#pragma once

#include <signal.h>

namespace flashtile {

class SignalsBlocked {
public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

private:
    sigset_t before_;
};

}  // namespace flashtile
