#!/usr/bin/env bash
# Renders a directory of config/ to a file. With IMAGE=name:tag or IMAGE=name@digest,
# that is the image of svc in it.
# usage: BIN=DIRECTORY hack/manifests.sh CONFIG OUTPUT
set -euo pipefail
cd "$(dirname "$0")/.."

config=$1 output=$2
mkdir -p dist/render "$(dirname "$output")"
{
	echo "apiVersion: kustomize.config.k8s.io/v1beta1"
	echo "kind: Kustomization"
	echo "resources: [$(realpath --relative-to=dist/render "$config")]"
	if [[ -n ${IMAGE:-} ]]; then
		case ${IMAGE##*/} in
		*@*) echo "images: [{name: svc, newName: '${IMAGE%@*}', digest: '${IMAGE##*@}'}]" ;;
		*:*) echo "images: [{name: svc, newName: '${IMAGE%:*}', newTag: '${IMAGE##*:}'}]" ;;
		*) echo "IMAGE=$IMAGE: give it a tag or a digest" >&2 && exit 1 ;;
		esac
	fi
} >dist/render/kustomization.yaml
"$BIN/svc" kubectl kustomize dist/render >"$output.new"
mv "$output.new" "$output"
