package proxy

import (
	"encoding/json"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// api serves objects that do not change, as much as kube-proxy needs of an API server.
func api(o objects) http.Handler {
	list := metav1.ListMeta{ResourceVersion: "1"}
	kind := func(version, name string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: version, Kind: name} }
	node := o.node
	node.TypeMeta = kind("v1", "Node")
	lists := map[string]any{
		"/api/v1/services":                         corev1.ServiceList{TypeMeta: kind("v1", "ServiceList"), ListMeta: list, Items: o.services},
		"/api/v1/nodes":                            corev1.NodeList{TypeMeta: kind("v1", "NodeList"), ListMeta: list, Items: []corev1.Node{o.node}},
		"/api/v1/nodes/" + nodeName:                node,
		"/apis/discovery.k8s.io/v1/endpointslices": discoveryv1.EndpointSliceList{TypeMeta: kind("discovery.k8s.io/v1", "EndpointSliceList"), ListMeta: list, Items: o.slices},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		object, found := lists[r.URL.Path]
		switch {
		case r.Method != http.MethodGet: // an event
			w.WriteHeader(http.StatusCreated)
			object = map[string]any{"apiVersion": "v1", "kind": "Status"}
		case !found:
			w.WriteHeader(http.StatusNotFound)
			object = metav1.Status{TypeMeta: kind("v1", "Status"), Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound}
		case r.URL.Query().Get("sendInitialEvents") != "": // as servers without the feature WatchList answer: then the client lists
			w.WriteHeader(http.StatusUnprocessableEntity)
			object = metav1.Status{TypeMeta: kind("v1", "Status"), Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity}
		case r.URL.Query().Get("watch") != "":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		_ = json.NewEncoder(w).Encode(object) // a client that is gone asks again
	})
}
