package controllers

import (
	"context"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// absent is the UID of an object that does not exist.
const absent = "0e96ba2c-dc1f-44b1-9a5f-9d4c4a5ab6f1"

// ownedBy creates a config map whose owners are those that the references name. "blocking"
// after a name says that the owner waits for it, "missing" names one that does not exist,
// and "stale" the owner with another UID. A held one has a finalizer.
func ownedBy(name, references, more string) func(ctx context.Context, s *side) error {
	return func(ctx context.Context, s *side) error {
		var list []any
		for _, word := range strings.Fields(references) {
			reference := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": word, "uid": absent}
			switch word {
			case "blocking":
				list[len(list)-1].(map[string]any)["blockOwnerDeletion"] = true
				continue
			case "stale":
				reference["name"] = "owner"
			case "missing":
			default:
				o, err := s.resource("ConfigMap").Get(ctx, word, metav1.GetOptions{})
				if err != nil {
					return err
				}
				reference["uid"] = string(o.GetUID())
			}
			list = append(list, reference)
		}
		metadata := map[string]any{"name": name, "ownerReferences": list}
		if more == "held" {
			metadata["finalizers"] = []any{"example.com/hold"}
		}
		_, err := s.resource("ConfigMap").Create(ctx, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}}, metav1.CreateOptions{})
		return err
	}
}

// closeCycle makes the config map "a" an owner of its owner.
func closeCycle(ctx context.Context, s *side) error {
	a, err := s.resource("ConfigMap").Get(ctx, "a", metav1.GetOptions{})
	if err != nil {
		return err
	}
	body := fmt.Appendf(nil, `{"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": %q, "blockOwnerDeletion": true}]}}`, a.GetUID())
	_, err = s.resource("ConfigMap").Patch(ctx, "owner", types.MergePatchType, body, metav1.PatchOptions{})
	return err
}

func removing(name, policy string) func(ctx context.Context, s *side) error {
	return func(ctx context.Context, s *side) error {
		propagation := metav1.DeletionPropagation(policy)
		return s.resource("ConfigMap").Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &propagation})
	}
}

// releaseAll removes the finalizers of the scenario from all config maps.
func releaseAll(ctx context.Context, s *side) error {
	list, err := s.resource("ConfigMap").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range list.Items {
		if finalizers := o.GetFinalizers(); len(finalizers) == 1 && finalizers[0] == "example.com/hold" {
			_, err := s.resource("ConfigMap").Patch(ctx, o.GetName(), types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
