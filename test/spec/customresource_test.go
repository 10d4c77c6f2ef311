package spec

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// define creates the definition of a kind Thing in the group
// <name>.example.com, whose version has the further members, and returns the path
// of its objects in the namespace default once they are served.
func define(ctx context.Context, name, members string) (path string) {
	GinkgoHelper()
	return defineSpec(ctx, name, members, `{"type": "object", "x-kubernetes-preserve-unknown-fields": true}`)
}

// defineSpec is define with a schema of the field spec.
func defineSpec(ctx context.Context, name, members, spec string) (path string) {
	GinkgoHelper()
	create(ctx, definitions, fmt.Sprintf(`{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "things.%[1]s.example.com"},
		"spec": {
			"group": "%[1]s.example.com", "scope": "Namespaced", "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
			"versions": [{"name": "v1", "served": true, "storage": true, %[2]s
				"schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": %[3]s}}}}]
		}}`, name, members, spec))
	path = fmt.Sprintf("/apis/%s.example.com/v1/namespaces/default/things", name)
	Eventually(ctx, func(g Gomega) {
		g.Expect(send(ctx, launch.Request{Method: "GET", Path: path}).Status).To(Equal(200))
	}).Should(Succeed())
	return path
}

// create posts an object in JSON, and returns what the server made of it.
func create(ctx context.Context, path, body string) object {
	GinkgoHelper()
	return parse(send(ctx, launch.Request{Method: "POST", Path: path, ContentType: "application/json", Body: body}), 201)
}
