//! A wall clock that is wrong: preloaded into a process (`LD_PRELOAD`), it adds the seconds of `SKEWED_CLOCK` to the time of day that the
//! process is told, and leaves its monotonic clock alone. Linux only; elsewhere this is empty.

#[cfg(target_os = "linux")]
mod linux {
    use std::{
        ptr,
        sync::atomic::{AtomicI64, Ordering},
    };

    use libc::{
        CLOCK_REALTIME, CLOCK_REALTIME_COARSE, c_int, c_long, clockid_t, time_t, timespec, timeval,
    };

    /// What the offset is before the environment was read.
    const UNREAD: i64 = i64::MIN;

    /// The seconds to add. Nothing of the standard library that may itself ask for the time is used to read them.
    fn offset() -> i64 {
        static OFFSET: AtomicI64 = AtomicI64::new(UNREAD);
        match OFFSET.load(Ordering::Relaxed) {
            UNREAD => {
                // SAFETY: the name ends with a zero. The environment is not changed by the processes of the tests, so what is returned is
                // null or a text that stays.
                let text = unsafe { libc::getenv(c"SKEWED_CLOCK".as_ptr()) };
                let seconds = if text.is_null() {
                    0
                } else {
                    // SAFETY: it is not null, and ends with a zero.
                    unsafe { libc::atoll(text) }
                };
                OFFSET.store(seconds, Ordering::Relaxed);
                seconds
            }
            seconds => seconds,
        }
    }

    /// The clock of the kernel, skewed where it is the time of day.
    fn read(clock: clockid_t, time: *mut timespec) -> c_int {
        // SAFETY: the arguments are those that the caller gives to `clock_gettime`, which this system call is. The C library's own
        // function of that name is this one, so it cannot be called.
        let result = unsafe { libc::syscall(libc::SYS_clock_gettime, c_long::from(clock), time) };
        if result == 0 && matches!(clock, CLOCK_REALTIME | CLOCK_REALTIME_COARSE) {
            // SAFETY: the kernel has just written to it, so it points to a `timespec`.
            unsafe { (*time).tv_sec += offset() };
        }
        c_int::try_from(result).unwrap_or(-1)
    }

    fn now() -> timespec {
        let mut now = timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        read(CLOCK_REALTIME, &raw mut now);
        now
    }

    /// In place of the C library's.
    ///
    /// # Safety
    /// As the C library's: `time` points to a `timespec`.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
        read(clock, time)
    }

    /// In place of the C library's.
    ///
    /// # Safety
    /// As the C library's: `time` points to a `timeval` or is null.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn gettimeofday(time: *mut timeval, _zone: *mut libc::c_void) -> c_int {
        let now = now();
        if !time.is_null() {
            let value = timeval {
                tv_sec: now.tv_sec,
                tv_usec: now.tv_nsec / 1_000,
            };
            // SAFETY: the caller says that it points to a `timeval`.
            unsafe { ptr::write(time, value) };
        }
        0
    }

    /// In place of the C library's.
    ///
    /// # Safety
    /// As the C library's: `time` points to a `time_t` or is null.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn time(time: *mut time_t) -> time_t {
        let now = now().tv_sec;
        if !time.is_null() {
            // SAFETY: the caller says that it points to a `time_t`.
            unsafe { ptr::write(time, now) };
        }
        now
    }
}
