package services

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	endpointsliceutil "k8s.io/endpointslice/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestConcerned(t *testing.T) {
	type labels = map[string]string
	service := func(namespace, name string, selector labels) client.Object {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{Selector: selector}}
	}
	index := BySelector()
	reader := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithIndex(index.Object, index.Name, index.Values).WithObjects(
		service("default", "web", labels{"app": "web"}),
		service("default", "east", labels{"app": "web", "zone": "east"}),
		service("default", "db", labels{"app": "db"}),
		service("default", "own", nil),
		service("other", "web", labels{"app": "web"}),
	).Build()
	for _, test := range []struct {
		rule   string
		change endpointsliceutil.PodProjectionKey
		want   []string
	}{
		{"a service selects the pods that have all labels of its selector",
			endpointsliceutil.PodProjectionKey{Labels: labels{"app": "web", "zone": "west"}}, []string{"web"}},
		{"a pod may be in several services",
			endpointsliceutil.PodProjectionKey{Labels: labels{"app": "web", "zone": "east", "more": "labels"}}, []string{"east", "web"}},
		{"a pod without labels is in none", endpointsliceutil.PodProjectionKey{}, nil},
		{"changed labels concern the services that begin or cease to select the pod",
			endpointsliceutil.PodProjectionKey{Labels: labels{"app": "web"}, OldLabels: labels{"app": "web", "zone": "east"}}, []string{"east"}},
		{"they concern all services if more than labels has changed",
			endpointsliceutil.PodProjectionKey{Labels: labels{"app": "db"}, OldLabels: labels{"app": "web"}, PodChanged: true}, []string{"db", "web"}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			test.change.Namespace = "default"
			var got []string
			for key := range concerned(t.Context(), reader, &test.change) {
				if key.Namespace != "default" {
					t.Errorf("%s is in another namespace", key)
				}
				got = append(got, key.Name)
			}
			slices.Sort(got)
			if !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
