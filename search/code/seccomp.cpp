#include "seccomp.hpp"

#include <errno.h>
#include <initializer_list>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <vector>

namespace banyan::code {

std::string seccomp_filter() {
#if defined(__x86_64__)
  constexpr unsigned kArch = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
  constexpr unsigned kArch = AUDIT_ARCH_AARCH64;
#else
  return "";
#endif
#if defined(__x86_64__) || defined(__aarch64__)
  std::vector<sock_filter> code;
  const auto load = [&](unsigned offset) { code.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offset)); };
  const auto give = [&](unsigned action) { code.push_back(BPF_STMT(BPF_RET | BPF_K, action)); };
  // Skips the next instruction unless the loaded word equals `value`.
  const auto if_equal = [&](unsigned value) { code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1)); };
  const unsigned deny = SECCOMP_RET_ERRNO | EPERM;

  load(offsetof(seccomp_data, arch));
  code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArch, 1, 0));
  give(SECCOMP_RET_KILL_PROCESS);
  load(offsetof(seccomp_data, nr));
  for (unsigned call : {SYS_unshare,
                        SYS_setns,
                        SYS_mount,
                        SYS_umount2,
                        SYS_pivot_root,
                        SYS_chroot,
                        SYS_ptrace,
                        SYS_process_vm_readv,
                        SYS_process_vm_writev,
                        SYS_pidfd_getfd,
                        SYS_bpf,
                        SYS_perf_event_open,
                        SYS_userfaultfd,
                        SYS_keyctl,
                        SYS_add_key,
                        SYS_request_key,
                        SYS_io_uring_setup,
                        SYS_memfd_create,
                        SYS_name_to_handle_at,
                        SYS_open_by_handle_at}) {
    if_equal(call);
    give(deny);
  }
  // The C library falls back to clone, whose flags can be read here.
  if_equal(SYS_clone3);
  give(SECCOMP_RET_ERRNO | ENOSYS);
#if defined(__x86_64__)
  // The x32 numbers would go round the list.
  code.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1));
  give(deny);
#endif
  code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3));
  load(offsetof(seccomp_data, args[0]));  // the low word, on little-endian machines
  code.push_back(BPF_JUMP(
      BPF_JMP | BPF_JSET | BPF_K,
      CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP, 0, 1));
  give(deny);
  give(SECCOMP_RET_ALLOW);
  return std::string(reinterpret_cast<const char*>(code.data()), code.size() * sizeof(sock_filter));
#endif
}

}  // namespace banyan::code
