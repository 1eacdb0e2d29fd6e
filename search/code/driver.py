# The supervisor inside the sandbox: compiles one program, then runs each of its tests in a forked child.
#
# It knows nothing that the program may not know: inputs arrive test by test, expected outputs never do, so a program
# that takes this process over can spoil its own verdict and nothing else. Answers are compared outside.
#
# File descriptors: 0 the program's text, 3 the control socket (SOCK_SEQPACKET). Messages out: "ready", or "compile
# TEXT", or after each test "STATUS CPU_US"; messages in: one per test, with five descriptors: stdin, stdout, stderr,
# input and output channel. Every descriptor is a memory file, so nothing here can block on a full pipe.
import array
import os
import resource
import sys

import _socket  # `socket`, `signal` and `enum` would double the time to start

EXIT_MEMORY = 86
EXIT_ASSERT = 87


def limit(kind, soft, hard=None):
    resource.setrlimit(kind, (soft, hard if hard is not None else soft))


def read_all(fd):
    parts = []
    while part := os.read(fd, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def write_all(fd, data):
    while data:
        data = data[os.write(fd, data):]


def attach_streams(fds):
    for number in range(3):
        os.dup2(fds[number], number)
    sys.stdin = sys.__stdin__ = open(0, "r", encoding="utf-8", closefd=False)
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.__stderr__ = open(2, "w", encoding="utf-8", errors="backslashreplace", closefd=False)


def run_script(code, entry_point, source_fd, result_fd):
    main = type(sys)("__main__")
    main.__file__ = "program.py"
    sys.modules["__main__"] = main
    sys.argv = ["program.py"]
    os.close(source_fd)
    os.close(result_fd)
    exec(code, main.__dict__)


def common_names():
    # The names that call-based problems take for granted; the published runner imports about the same.
    import bisect, collections, copy, functools, heapq, itertools, math, operator, random, re, string, typing

    modules = (bisect, collections, copy, functools, heapq, itertools, math, operator, random, re, string, typing)
    names = {module.__name__: module for module in modules}
    for module in (typing, bisect, collections, functools, heapq, itertools, math):
        for name in getattr(module, "__all__", None) or [n for n in dir(module) if n[0] != "_"]:
            names.setdefault(name, getattr(module, name))
    names.update({"inf": math.inf, "pow": pow})
    return names


def with_int_keys(value):
    # JSON has no integer keys: the published runner turns those of a top-level dictionary back where all allow it.
    if not isinstance(value, dict):
        return value
    try:
        return {int(key): item for key, item in value.items()}
    except ValueError:
        return value


def run_call(code, entry_point, source_fd, result_fd):
    import json

    arguments = [with_int_keys(value) for value in json.loads(read_all(source_fd))]
    names = common_names()
    names["__name__"] = "solution"
    exec(code, names)
    function = names.get(entry_point)
    if "Solution" in names and hasattr(names["Solution"], entry_point):
        function = getattr(names["Solution"](), entry_point)
    if function is None:
        raise NameError("the program defines no %r" % entry_point)
    result = function(*arguments)
    write_all(result_fd, json.dumps(result, default=lambda value: {"\0not JSON": repr(value)}).encode())


def run_check(code, entry_point, source_fd, result_fd):
    exec(code, {})
    # The mark is read only now, so that leaving early does not pass.
    write_all(result_fd, read_all(source_fd))


RUNNERS = {"script": run_script, "call": run_call, "check": run_check}


def exit_status(error):
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def child(kind, code, entry_point, fds, cpu_s, n_processes):
    status = 1
    try:
        limit(resource.RLIMIT_NPROC, n_processes)
        limit(resource.RLIMIT_CPU, cpu_s, cpu_s + 1)
        attach_streams(fds)
        for fd in fds[:3]:
            os.close(fd)
        os.close(3)
        try:
            RUNNERS[kind](code, entry_point, fds[3], fds[4])
            status = 0
        except SystemExit as error:
            status = exit_status(error) if kind == "script" else 1
        except MemoryError:
            status = EXIT_MEMORY
        except AssertionError:
            status = EXIT_ASSERT if kind == "check" else 1
            sys.excepthook(*sys.exc_info())
        except BaseException:
            sys.excepthook(*sys.exc_info())
        # What an interpreter does at its end: wait for threads, call the exit functions, flush.
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        if "atexit" in sys.modules:
            sys.modules["atexit"]._run_exitfuncs()
        sys.stderr.flush()
        sys.stdout.flush()
    except MemoryError:
        status = EXIT_MEMORY
    except BaseException:
        status = status or 1
    finally:
        os._exit(status)


def end_everything_else():
    # All processes of this PID namespace but its init and this one. Orphans of a test end with it.
    try:
        os.kill(-1, 9)
    except ProcessLookupError:
        pass


def clear_folders():
    # What a test wrote must not be there for the next one.
    for folder in ("/tmp", "/dev/shm"):
        if names := os.listdir(folder):
            import shutil

            for name in names:
                path = os.path.join(folder, name)
                try:
                    os.unlink(path)
                except OSError:  # a folder, or a path that was mounted here
                    shutil.rmtree(path, ignore_errors=True)


def become(uid):
    # Started by root: without a user namespace of its own, the sandbox has a true unprivileged user instead.
    if uid:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


def leave(code=None):
    raise SystemExit(code)


def main():
    kind, entry_point, uid, memory, output, cpu_s, n_processes = sys.argv[1:8]
    become(int(uid))
    os.closerange(4, 1024)
    sys.path[:] = sys.argv[8:]
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_NOFILE, 128)
    limit(resource.RLIMIT_FSIZE, int(output) + 1)
    limit(resource.RLIMIT_AS, int(memory))
    # 3.11 and later keep Python calls off the C stack; this helps the older ones with deep recursion.
    stack = resource.getrlimit(resource.RLIMIT_STACK)[1]
    limit(resource.RLIMIT_STACK, min(96 << 20, stack) if stack >= 0 else 96 << 20, stack)
    import builtins

    builtins.exit = builtins.quit = leave  # what `site` would have added
    control = _socket.socket(fileno=3)
    try:
        code = compile(read_all(0), "program.py", "exec", dont_inherit=True)
    except BaseException as error:
        control.send(b"compile " + ("%s: %s" % (type(error).__name__, error)).encode("utf-8", "replace")[:2000])
        return
    control.send(b"ready")
    while True:
        message, ancillary, _, _ = control.recvmsg(16, _socket.CMSG_SPACE(5 * 4))
        if not message:
            return
        fds = array.array("i")
        fds.frombytes(ancillary[0][2])
        pid = os.fork()
        if pid == 0:
            child(kind, code, entry_point, list(fds), int(cpu_s), int(n_processes))
        for fd in fds:
            os.close(fd)
        _, status, usage = os.wait4(pid, 0)
        end_everything_else()
        clear_folders()
        cpu_us = int((usage.ru_utime + usage.ru_stime) * 1e6)
        control.send(b"%d %d" % (status, cpu_us))


main()
