# Writes the constraint file of STACK: the newest versions that go together today, for Python 3.10 (vLLM 0.32.0
# and TRL: 3.11, SkyRL: 3.12) to 3.12. Needs uv. OpenRLHF and SkyRL require flash-attn, which cannot be
# resolved.
set -eu
trainer=${STACK%%-*}
overrides=constraints/overrides-${STACK#*-}.txt
[ -e "$overrides" ] || overrides=constraints/overrides-torch.txt
python=3.10
case $STACK in *-0.32.0 | trl-* | skyrl-*) python=3.11 ;; esac
[ "$trainer" = verl ] && cpu=cpu || cpu=$trainer-cpu
echo '# Made by `make constraints`; see docs/compatibility.md.'
[ "$trainer" != openrlhf ] || echo openrlhf==0.11.2
[ "$trainer" != skyrl ] || echo skyrl==0.4.0
uv pip compile pyproject.toml --quiet --no-header --no-annotate --universal --python-version $python \
  --override "$overrides" --extra "$trainer" --extra "$cpu" \
  --extra math --extra data --extra eval --extra dev --extra tasks
