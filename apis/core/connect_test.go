package core

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/resource"
)

// stored are objects that can be read.
type stored struct {
	resource.Objects
	objects []runtime.Object
	gr      schema.GroupResource
}

func (s stored) Get(_ context.Context, namespace, name string) (runtime.Object, error) {
	if name == "" {
		return nil, apierrors.NewBadRequest("Name parameter required.")
	}
	for _, obj := range s.objects {
		if m := obj.(metav1.Object); m.GetNamespace() == namespace && m.GetName() == name {
			return obj, nil
		}
	}
	return nil, apierrors.NewNotFound(s.gr, name)
}

func connectEnv() *resource.Env {
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "ns", Name: name} }
	pod := func(name, node, ip string, containers ...string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: meta(name), Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}}}
		for _, c := range containers {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c, Ports: []corev1.ContainerPort{{ContainerPort: 8080}}})
		}
		return p
	}
	debugged := pod("debugged", "node", "10.1.2.3", "c")
	debugged.Spec.InitContainers = []corev1.Container{{Name: "init"}}
	debugged.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger"}}}
	behind := &corev1.Endpoints{ObjectMeta: meta("web"), Subsets: []corev1.EndpointSubset{{
		Addresses: []corev1.EndpointAddress{{IP: "10.1.2.3", TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "one"}}},
		Ports:     []corev1.EndpointPort{{Name: "web", Port: 8080}},
	}}}
	objects := map[string][]runtime.Object{
		"pods": {pod("one", "node", "10.1.2.3", "c"), pod("two", "node", "fd00::1", "a", "b"), pod("waiting", "", "", "c"), pod("local", "node", "127.0.0.1", "c"), debugged},
		"nodes": {
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Status: corev1.NodeStatus{
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "host"}, {Type: corev1.NodeInternalIP, Address: "192.0.2.1"}},
			}},
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare"}},
		},
		"services":  {&corev1.Service{ObjectMeta: meta("web"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "web", Port: 80}}}}},
		"endpoints": {behind, &corev1.Endpoints{ObjectMeta: meta("empty")}},
	}
	return &resource.Env{
		Agents: resource.Agents{AddressTypes: []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeHostName}},
		Objects: func(gr schema.GroupResource) resource.Objects {
			if gr.Group == discoveryv1.GroupName {
				return nil
			}
			return stored{objects: objects[gr.Resource], gr: gr}
		},
	}
}

func TestWhereARequestGoes(t *testing.T) {
	for _, test := range []struct {
		rule    string
		connect resource.Connect
		name    string
		options runtime.Object
		want    string // a URL, or what the error says
	}{
		{"the log of the only container", podLog, "one", &corev1.PodLogOptions{Follow: true, TailLines: ptr.To[int64](2)}, "https://192.0.2.1:10250/containerLogs/ns/one/c?follow=true&tailLines=2"},
		{"a log of one stream", podLog, "one", &corev1.PodLogOptions{Stream: ptr.To("Stderr")}, "https://192.0.2.1:10250/containerLogs/ns/one/c?stream=Stderr"},
		{"the log of an init container", podLog, "debugged", &corev1.PodLogOptions{Container: "init"}, "https://192.0.2.1:10250/containerLogs/ns/debugged/init"},
		{"no log before the pod has a node", podLog, "waiting", &corev1.PodLogOptions{}, ""},
		{"no log without the name of the container, if there are several", podLog, "two", &corev1.PodLogOptions{}, "a container name must be specified for pod two, choose one of: [a b]"},
		{"no log of a container that is not there", podLog, "two", &corev1.PodLogOptions{Container: "x"}, "container x is not valid for pod two"},
		{"no log since two times", podLog, "one", &corev1.PodLogOptions{SinceSeconds: ptr.To[int64](1), SinceTime: &metav1.Time{}}, "at most one of `sinceTime` or `sinceSeconds` may be specified"},
		{"no log of a pod that is not there", podLog, "none", &corev1.PodLogOptions{}, `pods "none" not found`},
		{"a command in a container", podExec, "two", &corev1.PodExecOptions{Container: "b", Command: []string{"ls", "-l"}, Stdin: true, Stdout: true, TTY: true}, "https://192.0.2.1:10250/exec/ns/two/b?command=ls&command=-l&input=1&output=1&tty=1"},
		{"a command in an ephemeral container", podExec, "debugged", &corev1.PodExecOptions{Container: "debugger", Stderr: true}, "https://192.0.2.1:10250/exec/ns/debugged/debugger?error=1"},
		{"no command before the pod has a node", podExec, "waiting", &corev1.PodExecOptions{}, "pod waiting does not have a host assigned"},
		{"attaching to a container", podAttach, "one", &corev1.PodAttachOptions{Stdout: true}, "https://192.0.2.1:10250/attach/ns/one/c?output=1"},
		{"ports forwarded", podPortForward, "one", &corev1.PodPortForwardOptions{Ports: []int32{80, 443}}, "https://192.0.2.1:10250/portForward/ns/one?port=80&port=443"},
		{"a pod's first port", podProxy, "one", &corev1.PodProxyOptions{Path: "/x"}, "http://10.1.2.3:8080/x"},
		{"a pod's port of another scheme", podProxy, "https:two:443", &corev1.PodProxyOptions{}, "https://[fd00::1]:443"},
		{"no pod that is on the server's machine", podProxy, "local", &corev1.PodProxyOptions{}, "address not allowed"},
		{"no pod without an address", podProxy, "waiting", &corev1.PodProxyOptions{}, "address not allowed"},
		{"a node's agent", nodeProxy, "node", &corev1.NodeProxyOptions{Path: "/metrics"}, "https://192.0.2.1:10250/metrics"},
		{"another port of a node", nodeProxy, "http:node:9100", &corev1.NodeProxyOptions{Path: "/metrics"}, "http://192.0.2.1:9100/metrics"},
		{"no node without an address", nodeProxy, "bare", &corev1.NodeProxyOptions{}, "none of these addresses"},
		{"a service by its port's number", serviceProxy, "web:80", &corev1.ServiceProxyOptions{Path: "/x"}, "http://10.1.2.3:8080/x"},
		{"a service by its port's name", serviceProxy, "https:web:web", &corev1.ServiceProxyOptions{}, "https://10.1.2.3:8080"},
		{"no port that the service does not have", serviceProxy, "web:81", &corev1.ServiceProxyOptions{}, `no service port 81 found for service "web"`},
		{"no port that the endpoints do not have", serviceProxy, "web:none", &corev1.ServiceProxyOptions{}, `no endpoints available for service "web:none"`},
		{"no service without endpoints", serviceProxy, "empty:web", &corev1.ServiceProxyOptions{}, `no endpoints available for service "empty"`},
	} {
		t.Run(test.rule, func(t *testing.T) {
			where, err := test.connect.Locate(t.Context(), connectEnv(), resource.ConnectRequest{Namespace: "ns", Name: test.name, Options: test.options})
			if err != nil {
				if test.want == "" || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got the error %v, want %s", err, test.want)
				}
				return
			}
			got := ""
			if where.URL != nil {
				got = where.URL.String()
			}
			if got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
