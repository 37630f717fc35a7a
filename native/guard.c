/* Calls of wgpu-native that end the process where they fail, survived.
 *
 * Where a driver loses its device, wgpu-native panics in the call that notices, and a panic there is abort().
 * POSIX lets a handler of SIGABRT jump out of abort(): so the call ends, and the caller hears that it failed.
 * wgpu-native has let go of its own locks by then; the device must not be used again.
 *
 * The handler stays, so that a call costs no system call more. An abort on a thread that is in no such call goes
 * the way that it went before.
 */

#ifndef _WIN32
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))

typedef uintptr_t Word;
typedef Word (*Call)(Word, Word, Word);

static __thread sigjmp_buf *way_out;
static struct sigaction before;

static void on_abort(int signal) {
    if (way_out)
        siglongjmp(*way_out, 1);
    sigaction(SIGABRT, &before, NULL);
    raise(signal);
}

/* Put the handler in its place, also where another one has taken that since. Not for several threads at once. */
EXPORTED void pteron_guard(void) {
    /* Not deferred: a jump out of the handler leaves the mask of signals as it is. */
    struct sigaction ours = {.sa_handler = on_abort, .sa_flags = SA_NODEFER}, now;
    sigaction(SIGABRT, NULL, &now);
    if (now.sa_handler == on_abort)
        return;
    before = now;
    sigaction(SIGABRT, &ours, NULL);
}

/* What a function of whole numbers or pointers gives for these; all ones where it came to no end. */
EXPORTED Word pteron_guarded(Call call, Word first, Word second, Word third) {
    sigjmp_buf here;
    volatile Word result = ~(Word)0;
    if (sigsetjmp(here, 0) == 0) {
        way_out = &here;
        result = call(first, second, third);
    }
    way_out = NULL;
    return result;
}
#endif
