package events

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestSimilarEventsAreCounted(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	recorder := Start(ctx, c).NewRecorder(scheme, corev1.EventSource{Component: "test-controller"})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "1"}}
	for range 3 {
		recorder.Event(pod, corev1.EventTypeWarning, "FailedScheduling", "no node")
	}
	recorder.Event(pod, corev1.EventTypeNormal, "Scheduled", "a node")

	want := "FailedScheduling no node 3 Pod p test-controller; Scheduled a node 1 Pod p test-controller; "
	deadline := time.Now().Add(time.Minute)
	for got := ""; got != want; {
		var list corev1.EventList
		if err := c.List(t.Context(), &list, client.InNamespace("default")); err != nil {
			t.Fatal(err)
		}
		got = ""
		for _, reason := range []string{"FailedScheduling", "Scheduled"} {
			for _, e := range list.Items {
				if e.Reason == reason {
					got += fmt.Sprintf("%s %s %d %s %s %s; ", e.Reason, e.Message, e.Count, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Source.Component)
				}
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
}
