package container

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// namespaces returns which namespaces a pod's containers share with the node, with
// one another, or not at all.
func namespaces(pod *corev1.Pod, user *runtimeapi.UserNamespace) (*runtimeapi.NamespaceOption, error) {
	users, err := userNamespace(pod, user)
	if err != nil {
		return nil, err
	}
	options := &runtimeapi.NamespaceOption{
		Network:       nodeOrPod(pod.Spec.HostNetwork),
		Ipc:           nodeOrPod(pod.Spec.HostIPC),
		Pid:           runtimeapi.NamespaceMode_CONTAINER,
		UsernsOptions: users,
	}
	switch shared := pod.Spec.ShareProcessNamespace; {
	case pod.Spec.HostPID:
		options.Pid = runtimeapi.NamespaceMode_NODE
	case shared != nil && *shared:
		options.Pid = runtimeapi.NamespaceMode_POD
	}
	return options, nil
}

func nodeOrPod(host bool) runtimeapi.NamespaceMode {
	if host {
		return runtimeapi.NamespaceMode_NODE
	}
	return runtimeapi.NamespaceMode_POD
}

// userNamespace is the node's unless the pod has its own (KEP-127).
func userNamespace(pod *corev1.Pod, own *runtimeapi.UserNamespace) (*runtimeapi.UserNamespace, error) {
	if pod.Spec.HostUsers == nil || *pod.Spec.HostUsers {
		return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}, nil
	}
	if own == nil {
		return nil, errors.New("can't set `spec.hostUsers: false`, runtime does not support user namespaces")
	}
	return own, nil
}

// supplementalGroups returns the groups for files (fsGroup, volumes) and those of
// the spec.
func supplementalGroups(sc *corev1.PodSecurityContext, volumes []int64) []int64 {
	var groups []int64
	if sc.FSGroup != nil {
		groups = append(groups, *sc.FSGroup)
	}
	groups = append(groups, sc.SupplementalGroups...)
	return append(groups, volumes...)
}

func supplementalGroupsPolicy(sc *corev1.PodSecurityContext) (runtimeapi.SupplementalGroupsPolicy, error) {
	if sc.SupplementalGroupsPolicy == nil {
		return runtimeapi.SupplementalGroupsPolicy_Merge, nil
	}
	policy, known := runtimeapi.SupplementalGroupsPolicy_value[string(*sc.SupplementalGroupsPolicy)]
	if !known {
		return 0, fmt.Errorf("unsupported supplementalGroupsPolicy: %s", *sc.SupplementalGroupsPolicy)
	}
	return runtimeapi.SupplementalGroupsPolicy(policy), nil
}

func selinuxOptions(options *corev1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if options == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: options.User, Role: options.Role, Type: options.Type, Level: options.Level}
}

func int64Value(v *int64) *runtimeapi.Int64Value {
	if v == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *v}
}
