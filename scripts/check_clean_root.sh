#!/usr/bin/env bash
# Proves the two commands on a machine with nothing installed: makes a minimal Debian (or Ubuntu) with debootstrap, clones
# the last commit into it and runs scripts/test.sh and scripts/demo.sh there. Needs root, debootstrap and git.
#
#   scripts/check_clean_root.sh [--suite bookworm] [--work DIR] [--mirror URL] [COMMAND…]
#
# COMMAND is run in the clone instead of the two scripts. DIR (default: /var/tmp/banyan-clean-root) keeps SUITE.base, which
# is made once, and SUITE.root, which is made from it afresh each time and left there to be looked at.
#
# The root is entered with pivot_root in namespaces of its own: a chroot may not create user namespaces, which the sandbox
# for sampled programs needs. It has its own /proc, /dev and /tmp, no ../shared, no home of yours; the network is the
# host's, with the host's resolver, package sources, pip settings, proxies and certificates copied in.
set -euo pipefail
shopt -s inherit_errexit nullglob

die() {
  printf 'check_clean_root.sh: %s\n' "$*" >&2
  exit 1
}

# ---- inside the new mount, process and host-name namespaces: ROOT becomes /, and COMMAND runs in the clone
if [[ ${1:-} == --inside ]]; then
  root=$2
  shift 2
  mount --make-rprivate /
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount -t sysfs -o ro sysfs "$root/sys"
  mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
  mount -t tmpfs -o mode=755 tmpfs "$root/dev"
  for node in null zero full random urandom tty; do
    touch "$root/dev/$node"
    mount --bind "/dev/$node" "$root/dev/$node"
  done
  ln -s /proc/self/fd "$root/dev/fd"
  mkdir -m 1777 "$root/dev/shm"
  mkdir "$root/host"
  hostname clean-root
  cd "$root"
  pivot_root . host
  umount -l /host
  rmdir /host
  cd /root/banyan
  exec "$@"
fi

suite=bookworm
work=/var/tmp/banyan-clean-root
mirror=
while (($#)); do
  case $1 in
    --suite) suite=$2 ;;
    --work) work=$2 ;;
    --mirror) mirror=$2 ;;
    -h | --help)
      sed -n '2,/^set -/{/^#/s/^# \{0,1\}//p}' "$0"
      exit 0
      ;;
    -*) die "unknown option $1; see --help" ;;
    *) break ;;
  esac
  shift 2
done
((EUID == 0)) || die "needs root: debootstrap and mount namespaces"
for tool in debootstrap unshare git; do
  command -v "$tool" >/dev/null || die "needs $tool"
done
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
root=$work/$suite.root
base=$work/$suite.base
[[ $work/ != "$checkout"/* ]] || die "--work $work lies inside the checkout"
if (($# == 0)); then
  set -- bash -c 'scripts/test.sh && scripts/demo.sh'
fi

# ---- the minimal system, once
mkdir -p "$work"
if [[ ! -d $base ]]; then
  if [[ -z $mirror ]]; then
    # The mirror that this machine uses for the suite, if it uses one.
    # shellcheck disable=SC2016  # apt-get fills these in
    mirror=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' 'Created-By: Packages' |
      sed -n "s/^$suite //p" | head -n 1)
  fi
  rm -rf "$base.part"
  debootstrap --variant=minbase "$suite" "$base.part" ${mirror:+"$mirror"}
  mv "$base.part" "$base"
fi
rm -rf --one-file-system "$root"
cp -a --reflink=auto "$base" "$root"

# ---- how this machine reaches the network
copy_in() {
  local path
  for path in "$@"; do
    if [[ -e $path ]]; then
      mkdir -p "$root$(dirname "$path")"
      cp -rLT "$path" "$root$path"
    fi
  done
}
copy_in /etc/resolv.conf /etc/hosts /etc/pip.conf
# shellcheck source=/dev/null
if [[ $suite == "$(. /etc/os-release && echo "${VERSION_CODENAME:-}")" ]]; then
  rm -f "$root/etc/apt/sources.list"
  copy_in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources
  copy_in /etc/apt/preferences.d /etc/apt/keyrings /usr/share/keyrings
fi
# The lines about transport and validity alone: the rest of apt's settings are this machine's own affair.
apt-config dump | grep -E '^Acquire::(http|https|Check|Retries|ForceIPv)[^ ]* "..*";$' >"$root/etc/apt/apt.conf.d/90host" || true
# This machine's certificates, under a name that installing ca-certificates leaves alone.
host_ca=/usr/local/share/host-ca.pem
host_bundle=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
if [[ -f $host_bundle ]]; then
  cp -L "$host_bundle" "$root$host_ca"
  echo "Acquire::https::CaInfo \"$host_ca\";" >>"$root/etc/apt/apt.conf.d/90host"
fi

environment=(HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8)
for name in $(compgen -e); do
  case $name in
    *_proxy | *_PROXY | PIP_INDEX_URL | PIP_EXTRA_INDEX_URL | PIP_DEFAULT_TIMEOUT | PIP_TRUSTED_HOST | BANYAN_*)
      environment+=("$name=${!name}")
      ;;
    SSL_CERT_FILE | CURL_CA_BUNDLE | REQUESTS_CA_BUNDLE | PIP_CERT | GIT_SSL_CAINFO)
      if [[ -f $root$host_ca ]]; then environment+=("$name=$host_ca"); fi
      ;;
  esac
done

# ---- the clone, and in
git clone -q --no-hardlinks "$checkout" "$root/root/banyan"
git -C "$root/root/banyan" remote remove origin
exec unshare --mount --pid --uts --ipc --fork --kill-child -- \
  env -i "${environment[@]}" bash "$0" --inside "$root" "$@"
