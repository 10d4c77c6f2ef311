package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"svc.dev/svc/controllers/election"
	"svc.dev/svc/internal/clientcert/clientcerttest"
)

func TestEventsAreNotWrittenAfterTheTerm(t *testing.T) {
	created := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var body any = metav1.APIGroupList{}
		switch {
		case r.Method == http.MethodPost:
			created++
			body = corev1.Event{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}}
		case r.URL.Path == "/api":
			body = metav1.APIVersions{Versions: []string{"v1"}}
		case r.URL.Path == "/api/v1":
			body = metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "events", Kind: "Event", Namespaced: true}}}
		}
		if err := json.NewEncoder(w).Encode(body); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	m, err := New(Config{Options: NewOptions(), API: &rest.Config{Host: server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	elector := &election.Elector{
		Client: fake.NewClientBuilder().WithScheme(m.scheme).Build(), Key: client.ObjectKey{Namespace: "kube-system", Name: "manager"},
		Holder: "me", Clock: clock.RealClock{}, Events: record.NewFakeRecorder(10),
		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
	}
	var recording client.Client
	event := func() *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}}
	}
	if err := elector.Lead(t.Context(), func(ctx context.Context, term *election.Term) error {
		h, err := newHost(ctx, m, term)
		if err != nil {
			return err
		}
		defer h.close()
		if recording, err = h.eventClient(m.requestTimeout()); err != nil {
			return err
		}
		return recording.Create(ctx, event())
	}); err != nil {
		t.Fatal(err)
	}
	if err := recording.Create(t.Context(), event()); !errors.Is(err, election.ErrLost) {
		t.Errorf("after the term: %v, want %v", err, election.ErrLost)
	}
	if created != 1 {
		t.Errorf("%d events are created, want 1", created)
	}
}

func TestRequestsOfControllersSurviveTheRenewalOfTheirCertificate(t *testing.T) {
	s := clientcerttest.New(t, nil)
	m, err := New(Config{Options: NewOptions(), API: s.Client()})
	if err != nil {
		t.Fatal(err)
	}
	h, err := newHost(t.Context(), m, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.close()
	s.Check(t, h.http.Transport)
}

// TestTermThatEndsAtTheStartEndsTheWork: a manager whose caches were cancelled before
// they have started would wait for them without end.
func TestTermThatEndsAtTheStartEndsTheWork(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	m, err := New(Config{Options: NewOptions(), API: &rest.Config{Host: server.URL}})
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for range 20 { // which of two channels is read first is random
		stopped := make(chan error, 1)
		go func() { stopped <- m.work(ended, nil) }()
		select {
		case err := <-stopped:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("the work has not stopped")
		}
	}
}
