package endpoints

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestDesired(t *testing.T) {
	type change func(*corev1.Service, []*corev1.Pod)
	for _, test := range []struct {
		rule   string
		change change
		want   string
	}{
		{"ready pods serve each port of the service", nil, "10.0.0.1,10.0.0.2:80,443"},
		{"pods that are not ready are separate", func(_ *corev1.Service, pods []*corev1.Pod) {
			pods[0].Status.Conditions = nil
		}, "10.0.0.2 (not 10.0.0.1):80,443"},
		{"unless unready ones are to be published", func(s *corev1.Service, pods []*corev1.Pod) {
			pods[0].Status.Conditions, s.Spec.PublishNotReadyAddresses = nil, true
		}, "10.0.0.1,10.0.0.2:80,443"},
		{"pods that end, have ended or have no address are left out", func(_ *corev1.Service, pods []*corev1.Pod) {
			pods[0].DeletionTimestamp = &metav1.Time{}
			pods[1].Status.PodIP, pods[1].Status.PodIPs = "", nil
		}, ""},
		{"a named port is where each pod has it; pods without it do not serve it", func(s *corev1.Service, pods []*corev1.Pod) {
			s.Spec.Ports = s.Spec.Ports[:1]
			s.Spec.Ports[0].TargetPort = intstr.FromString("http")
			pods[0].Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: corev1.ProtocolTCP}}}}
		}, "10.0.0.1:8080"},
		{"an IPv6 service has its pods' IPv6 addresses, in canonical form", func(s *corev1.Service, pods []*corev1.Pod) {
			s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
			pods[1].Status.PodIPs = append(pods[1].Status.PodIPs, corev1.PodIP{IP: "fd00:0::0002"})
		}, "fd00::2:80,443"},
		{"a headless service needs no ports", func(s *corev1.Service, _ []*corev1.Pod) {
			s.Spec.ClusterIP, s.Spec.Ports = corev1.ClusterIPNone, nil
		}, "10.0.0.1,10.0.0.2:"},
		{"any other service without ports has no endpoints", func(s *corev1.Service, _ []*corev1.Pod) { s.Spec.Ports = nil }, ""},
	} {
		t.Run(test.rule, func(t *testing.T) {
			s := &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"},
				Spec: corev1.ServiceSpec{
					ClusterIP: "10.96.0.1", IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
					Ports: []corev1.ServicePort{
						{Name: "http", Port: 8080, TargetPort: intstr.FromInt32(80), Protocol: corev1.ProtocolTCP},
						{Name: "https", Port: 8443, TargetPort: intstr.FromInt32(443), Protocol: corev1.ProtocolTCP},
					},
				},
			}
			pods := []*corev1.Pod{pod(1), pod(2)}
			if test.change != nil {
				test.change(s, pods)
			}
			if diff := cmp.Diff(test.want, describe(desired(s, pods, &corev1.Endpoints{}).Subsets)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDesiredMetadata(t *testing.T) {
	current := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "7",
		Labels:          map[string]string{"was": "here", corev1.IsHeadlessService: ""},
		Annotations:     map[string]string{"own": "kept", corev1.EndpointsOverCapacity: "truncated"},
	}}
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Labels: map[string]string{"app": "web"}},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1"},
	}
	got := desired(s, nil, current)
	if diff := cmp.Diff(map[string]string{"app": "web", managedBy: manager}, got.Labels); diff != "" {
		t.Errorf("labels are the service's:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"own": "kept"}, got.Annotations); diff != "" {
		t.Errorf("annotations of others stay:\n%s", diff)
	}
	if got.ResourceVersion != "7" {
		t.Error("the version is that of the current Endpoints")
	}
	s.Spec.ClusterIP = corev1.ClusterIPNone
	if _, ok := desired(s, nil, current).Labels[corev1.IsHeadlessService]; !ok {
		t.Error("a headless service's Endpoints say so")
	}
}

func TestTruncate(t *testing.T) {
	subset := func(ready, not int) corev1.EndpointSubset {
		return corev1.EndpointSubset{Addresses: make([]corev1.EndpointAddress, ready), NotReadyAddresses: make([]corev1.EndpointAddress, not)}
	}
	for _, test := range []struct {
		rule string
		in   []corev1.EndpointSubset
		want string
	}{
		{"1000 addresses have room", []corev1.EndpointSubset{subset(500, 200), subset(300, 0)}, "500+200 300+0"},
		{"addresses that are not ready go first, the same part of each subset", []corev1.EndpointSubset{subset(500, 400), subset(300, 400)}, "500+100 300+100"},
		{"then the ready ones", []corev1.EndpointSubset{subset(1500, 10), subset(500, 10)}, "750+0 250+0"},
		{"parts are rounded up as long as there is room", []corev1.EndpointSubset{subset(667, 0), subset(667, 0), subset(667, 0)}, "334+0 334+0 332+0"},
		{"a subset with nothing left is none", []corev1.EndpointSubset{subset(1000, 0), subset(0, 5)}, "1000+0"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			got, truncated := truncate(test.in)
			var words []string
			for _, s := range got {
				words = append(words, fmt.Sprintf("%d+%d", len(s.Addresses), len(s.NotReadyAddresses)))
			}
			if s := strings.Join(words, " "); s != test.want {
				t.Errorf("got %s, want %s", s, test.want)
			}
			if all := strings.Join(words, " ") == "500+200 300+0"; truncated == all {
				t.Errorf("truncated: %t", truncated)
			}
		})
	}
}

// describe writes subsets as "addresses (not addresses):ports; ...".
func describe(subsets []corev1.EndpointSubset) string {
	join := func(addresses []corev1.EndpointAddress) string {
		var ips []string
		for _, a := range addresses {
			ips = append(ips, a.IP)
		}
		return strings.Join(ips, ",")
	}
	var all []string
	for _, s := range subsets {
		text := join(s.Addresses)
		if len(s.NotReadyAddresses) > 0 {
			text += " (not " + join(s.NotReadyAddresses) + ")"
		}
		var ports []string
		for _, p := range s.Ports {
			ports = append(ports, fmt.Sprint(p.Port))
		}
		all = append(all, text+":"+strings.Join(ports, ","))
	}
	return strings.Join(all, "; ")
}

func pod(n int) *corev1.Pod {
	ip := fmt.Sprint("10.0.0.", n)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("pod-", n), UID: types.UID(ip)},
		Spec:       corev1.PodSpec{NodeName: "node"},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}
