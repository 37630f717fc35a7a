/* Calls of wgpu-native that end the process where they fail, survived.
 *
 * Where a driver loses its device, wgpu-native panics in the call that notices, and a panic there is abort().
 * POSIX lets a handler of SIGABRT jump out of abort(): so the call ends, and the caller hears that it failed.
 * wgpu-native has let go of its own locks by then; the device must not be used again.
 *
 * An abort on a thread that is in no such call goes its usual way.
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
static int within, is_busy;

static void lock(void) {
    while (__sync_lock_test_and_set(&is_busy, 1))
        ;
}

static void unlock(void) { __sync_lock_release(&is_busy); }

static void on_abort(int signal) {
    if (way_out)
        siglongjmp(*way_out, 1);
    sigaction(SIGABRT, &before, NULL);
    raise(signal);
}

static void enter(void) {
    lock();
    if (within++ == 0) {
        struct sigaction ours = {.sa_handler = on_abort};
        sigaction(SIGABRT, &ours, &before);
    }
    unlock();
}

static void leave(void) {
    lock();
    if (--within == 0)
        sigaction(SIGABRT, &before, NULL);
    unlock();
}

/* What a function of whole numbers or pointers gives for these; whether it came to an end. */
EXPORTED int pteron_guarded(Call call, Word first, Word second, Word third, Word *result) {
    sigjmp_buf here;
    int has_failed;
    enter();
    has_failed = sigsetjmp(here, 1);
    if (!has_failed) {
        way_out = &here;
        *result = call(first, second, third);
    }
    way_out = NULL;
    leave();
    return !has_failed;
}
#endif
