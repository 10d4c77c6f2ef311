package server

import (
	"encoding/json"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"svc.dev/svc/svclet/pod"
)

// listPods serves the desired pods of the node with their statuses.
func (s *Server) listPods(w http.ResponseWriter, r *http.Request) {
	writePods(w, r, s.parts.Pods.List())
}

// listRunningPods serves the pods in the runtime.
func (s *Server) listRunningPods(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/runningpods/" {
		http.NotFound(w, r)
		return
	}
	pods, err := s.parts.Pods.Running(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writePods(w, r, pods)
}

func writePods(w http.ResponseWriter, r *http.Request, pods []*corev1.Pod) {
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	for _, p := range pods {
		list.Items = append(list.Items, *p)
		list.Items[len(list.Items)-1].TypeMeta = metav1.TypeMeta{} // the list has it for all items
	}
	if list.Items == nil {
		list.Items = []corev1.Pod{}
	}
	writeJSON(w, r, list)
}

func writeJSON(w http.ResponseWriter, r *http.Request, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if _, err := w.Write(data); err != nil {
		klog.FromContext(r.Context()).V(2).Info("Failed to write pod list to the client", "path", r.URL.Path, "err", err)
	}
}

// RunningPod returns the representation of a pod in /runningpods/: its name and
// its running containers with their images.
func RunningPod(uid types.UID, namespace, name string, observed pod.Observed) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Namespace: namespace, Name: name}}
	for _, c := range observed.Containers {
		if c.State == pod.Running {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c.Name, Image: c.Image})
		}
	}
	return p
}

// runningContainer returns the running container of a pod with this name.
func runningContainer(observed pod.Observed, name string) (pod.Container, bool) {
	for _, c := range observed.Containers {
		if c.Name == name && c.State == pod.Running {
			return c, true
		}
	}
	return pod.Container{}, false
}

// fullName returns the pod's name as kubelet writes it in messages.
func fullName(p *corev1.Pod) string {
	return fmt.Sprintf("%s_%s", p.Name, p.Namespace)
}
