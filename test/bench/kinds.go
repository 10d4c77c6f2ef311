package main

import (
	"net/http"
	"strconv"
	"strings"
)

// Namespaces of the measures. Each has its own, so that watches and lists of one
// measure do not include the objects of another.
const (
	firstNamespace = "bench-first"
	verbNamespace  = "bench-verbs"
	listNamespace  = "bench-list"
)

// revisionKey is the annotation that every write changes.
const revisionKey = "bench.svc.dev/revision"

const discoveryType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"

// A kind makes requests for the objects of a resource. It joins bodies from
// prepared pieces.
type kind struct {
	api      string // the path of its version
	resource string
	pieces   []string // of a body, with the namespace, name and revision between
}

// marks separate the pieces of a template.
const marks = "@"

// newKind pads the template to size with the text that replaces "padding".
func newKind(resource, template string, size int) kind {
	template = strings.Join(strings.Fields(template), "")
	missing := size - len(template)
	template = strings.Replace(template, "padding", "padding"+strings.Repeat("x", max(0, missing)), 1)
	return kind{api: "/api/v1", resource: resource, pieces: strings.Split(template, marks)}
}

// configMapKind returns the kind of ConfigMaps of 1 KiB.
func configMapKind() kind {
	return newKind("configmaps", `{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": {"namespace": "@", "name": "@", "labels": {"app": "bench"}, "annotations": {"`+revisionKey+`": "@"}},
		"data": {"config": "padding"}
	}`, 1<<10)
}

// podKind returns the kind of pods of 2 KiB. They are complete, so that neither
// server needs other objects to admit them.
func podKind() kind {
	return newKind("pods", `{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": {
			"namespace": "@", "name": "@",
			"labels": {"app": "bench", "tier": "backend", "pod-template-hash": "5d4f8c7b9"},
			"annotations": {"`+revisionKey+`": "@", "bench.svc.dev/note": "padding"}
		},
		"spec": {
			"serviceAccountName": "default", "automountServiceAccountToken": false,
			"terminationGracePeriodSeconds": 30,
			"containers": [{
				"name": "app", "image": "registry.example.com/team/app:v1.2.3",
				"command": ["/app", "--listen=:8080", "--verbosity=2"],
				"ports": [{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 9090}],
				"env": [
					{"name": "LOG_LEVEL", "value": "info"},
					{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
				],
				"resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
				"readinessProbe": {"httpGet": {"path": "/ready", "port": "http"}, "periodSeconds": 5},
				"volumeMounts": [{"name": "config", "mountPath": "/etc/app"}, {"name": "cache", "mountPath": "/var/cache/app"}]
			}],
			"volumes": [{"name": "config", "configMap": {"name": "app"}}, {"name": "cache", "emptyDir": {}}],
			"tolerations": [
				{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
				{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
			]
		}
	}`, 2<<10)
}

func (k kind) collection(namespace string) string {
	return k.api + "/namespaces/" + namespace + "/" + k.resource
}

func (k kind) object(namespace, name string) string {
	return k.collection(namespace) + "/" + name
}

func (k kind) body(namespace, name string, revision int64) []byte {
	body := make([]byte, 0, 3<<10)
	body = append(append(body, k.pieces[0]...), namespace...)
	body = append(append(body, k.pieces[1]...), name...)
	body = strconv.AppendInt(append(body, k.pieces[2]...), revision, 10)
	return append(body, k.pieces[3]...)
}

func (k kind) create(namespace, name string, revision int64) request {
	return request{method: http.MethodPost, path: k.collection(namespace), body: k.body(namespace, name, revision)}
}

func (k kind) get(namespace, name string) request {
	return request{method: http.MethodGet, path: k.object(namespace, name)}
}

func (k kind) update(namespace, name string, revision int64) request {
	return request{method: http.MethodPut, path: k.object(namespace, name), body: k.body(namespace, name, revision)}
}

func (k kind) patch(namespace, name string, revision int64) request {
	body := `{"metadata":{"annotations":{"` + revisionKey + `":"` + strconv.FormatInt(revision, 10) + `"}}}`
	return request{method: http.MethodPatch, path: k.object(namespace, name), contentType: mergeType, body: []byte(body)}
}

func (k kind) apply(namespace, name string, revision int64) request {
	return request{
		method: http.MethodPatch, path: k.object(namespace, name) + "?fieldManager=bench&force=true",
		contentType: applyType, body: k.body(namespace, name, revision),
	}
}
