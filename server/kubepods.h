// What a cgroup's path tells of Kubernetes: which pod's it is, and which container's.
//
// kubelet names them in two ways: with the driver cgroupfs /kubepods/burstable/pod<uid>/<container id>, with
// systemd …/kubepods-burstable-pod<uid, '_' for '-'>.slice/cri-containerd-<container id>.scope.  Names of
// pods, namespaces and images are in no path.
//
// Thread safety: free functions.
#ifndef MEMCGD_SERVER_KUBEPODS_H_
#define MEMCGD_SERVER_KUBEPODS_H_

#include <string>
#include <string_view>

namespace memcgd::server {

struct KubernetesNames {
  std::string pod_uid;       // of a pod's cgroup and all below it; else empty
  std::string container_id;  // of a container's cgroup itself; else empty
};

KubernetesNames NamesOfPath(std::string_view path);

}  // namespace memcgd::server

#endif  // MEMCGD_SERVER_KUBEPODS_H_
