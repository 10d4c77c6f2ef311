package apiserver

import (
	"runtime"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apimachineryruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// storedDefinition is a definition as it is in etcd.
func storedDefinition(t *testing.T, codec apimachineryruntime.Codec, uid types.UID, description string) []byte {
	t.Helper()
	data, err := apimachineryruntime.Encode(codec, &apiextensions.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com", UID: uid},
		Spec: apiextensions.CustomResourceDefinitionSpec{
			Group: "example.com",
			Versions: []apiextensions.CustomResourceDefinitionVersion{{Name: "v1", Schema: &apiextensions.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensions.JSONSchemaProps{Type: "object", Description: description},
			}}, {Name: "v2"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestStatesOfADefinitionInEventsShareTheirSpecificationAsLongAsItDoesNotChange(t *testing.T) {
	codec := newDefinitionCodec(apiextensionsserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion))
	decode := func(data []byte, into apimachineryruntime.Object) *apiextensions.CustomResourceDefinition {
		t.Helper()
		obj, _, err := codec.Decode(data, nil, into)
		if err != nil {
			t.Fatal(err)
		}
		return obj.(*apiextensions.CustomResourceDefinition)
	}
	data, other := storedDefinition(t, codec, "1", "a"), storedDefinition(t, codec, "2", "a")
	first, second := decode(data, nil), decode(data, nil)
	if &first.Spec.Versions[0] != &second.Spec.Versions[0] {
		t.Error("equal specifications are not shared")
	}
	for name, separate := range map[string]*apiextensions.CustomResourceDefinition{
		"of a changed definition":                 decode(storedDefinition(t, codec, "1", "b"), nil),
		"of another definition":                   decode(other, nil),
		"of a definition that is read for update": decode(data, &apiextensions.CustomResourceDefinition{}),
	} {
		if &separate.Spec.Versions[0] == &first.Spec.Versions[0] {
			t.Errorf("the specification %s is shared", name)
		}
	}
	if first.Spec.Versions[0].Schema.OpenAPIV3Schema.Description != "a" {
		t.Error("a shared specification has changed")
	}
	runtime.KeepAlive(second)
}

func TestASharedSpecificationDoesNotKeepItsObject(t *testing.T) {
	codec := newDefinitionCodec(apiextensionsserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion))
	if _, _, err := codec.Decode(storedDefinition(t, codec, "1", "a"), nil, nil); err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	if _, _, err := codec.Decode(storedDefinition(t, codec, "2", "a"), nil, nil); err != nil {
		t.Fatal(err)
	}
	if n := len(codec.specs.last); n != 1 {
		t.Errorf("%d definitions are known, want the last one only", n)
	}
}
