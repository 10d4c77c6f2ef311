package apiclient

import (
	"context"
	"encoding/json"
	"fmt"

	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	apiruntime "k8s.io/apimachinery/pkg/runtime"

	"svc.dev/svc/apis/podspec"
)

// ResourceClaim reads a claim, by the newest version of its API that the server has. What
// an agent needs of it, its metadata and its status, is the same in all of them.
func (a *Clients) ResourceClaim(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
	var err error
	for _, version := range []string{"v1", "v1beta2", "v1beta1"} {
		result := a.Core.Get().AbsPath("/apis", resourceapi.GroupName, version).Namespace(namespace).Resource(podspec.ResourceClaim.Resource()).Name(name).
			SetHeader("Accept", apiruntime.ContentTypeJSON).Do(ctx)
		if err = result.Error(); apierrors.IsNotFound(err) && apierrors.IsUnexpectedServerError(err) {
			continue // The server does not have the version; a claim that is missing is a status.
		}
		if err != nil {
			return nil, err
		}
		body, err := result.Raw()
		if err != nil {
			return nil, err
		}
		var found struct {
			resourceapi.ResourceClaim
			// The specification differs between versions.
			Spec json.RawMessage `json:"spec"`
		}
		if err := json.Unmarshal(body, &found); err != nil {
			return nil, fmt.Errorf("decoding the claim: %w", err)
		}
		return &found.ResourceClaim, nil
	}
	return nil, err
}

// DeleteResourceSlices deletes the ResourceSlices of a node, of one driver or, if that is empty, of
// all, by the newest version of their API that the server has. It deletes none at a server that
// does not have the kind.
func (a *Clients) DeleteResourceSlices(ctx context.Context, node, driver string) error {
	selected := fields.Set{resourceapi.ResourceSliceSelectorNodeName: node}
	if driver != "" {
		selected[resourceapi.ResourceSliceSelectorDriver] = driver
	}
	for _, version := range []string{"v1", "v1beta2", "v1beta1"} {
		err := a.Core.Delete().AbsPath("/apis", resourceapi.GroupName, version).Resource("resourceslices").
			Param("fieldSelector", selected.String()).Do(ctx).Error()
		if !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}
