// Random numbers: Philox from the device's generator, the same on every backend.
#include "generator.h"
#include "native.h"

namespace halyard_torch {
namespace {

using at::Generator;
using std::optional;

Tensor& fill_random(hy_op op, Tensor& self, double a, double b,
                    const optional<Generator>& generator) {
  if (self.numel() == 0) return self;
  Call call(op, self.device());
  call.out(self);
  Draw place = draw(generator, self.get_device(), self.numel());
  call.attrs().random = {place.seed, place.offset, a, b};
  call.run();
  return self;
}

Tensor& uniform_(Tensor& self, double low, double high, optional<Generator> generator) {
  TORCH_CHECK(low <= high, "uniform_ expects to return a [from, to) range, but found from=", low,
              " > to=", high);
  return fill_random(HY_OP_uniform, self, low, high, generator);
}
Tensor& normal_(Tensor& self, double mean, double deviation, optional<Generator> generator) {
  TORCH_CHECK(deviation >= 0, "normal expects std >= 0.0, but found std ", deviation);
  return fill_random(HY_OP_normal, self, mean, deviation, generator);
}
Tensor& bernoulli_(Tensor& self, double p, optional<Generator> generator) {
  TORCH_CHECK(p >= 0 && p <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", p);
  return fill_random(HY_OP_bernoulli, self, p, 0, generator);
}
Tensor& bernoulli_tensor_(Tensor& self, const Tensor& p, optional<Generator> generator) {
  if (!at::isFloatingType(p.scalar_type())) decline("probabilities that are integers");
  Tensor chance = make_tensor(self.sizes(), at::kFloat, self.device());
  fill_random(HY_OP_uniform, chance, 0, 1, generator);
  return self.copy_(at::lt(chance, p));
}
Tensor& random_from_(Tensor& self, int64_t low, optional<int64_t> high,
                     optional<Generator> generator) {
  if (!high || *high <= low || *high - low > (int64_t{1} << 32)) decline("a range of this size");
  return fill_random(HY_OP_randint, self, static_cast<double>(low), static_cast<double>(*high),
                     generator);
}
Tensor& random_to_(Tensor& self, int64_t high, optional<Generator> generator) {
  return random_from_(self, 0, high, generator);
}
// -log(1 - u) / lambda: u is never 1.
Tensor& exponential_(Tensor& self, double lambda, optional<Generator> generator) {
  TORCH_CHECK(lambda > 0, "exponential_ expects lambda > 0.0, but found lambda=", lambda);
  if (!at::isFloatingType(self.scalar_type())) decline("integers");
  fill_random(HY_OP_uniform, self, 0, 1, generator);
  return self.neg_().add_(1).log_().mul_(-1 / lambda);
}
// One sample of each row: the largest of probability / exponential.
Tensor multinomial(const Tensor& p, int64_t n, bool replacement, optional<Generator> generator) {
  if (n != 1 || p.dim() < 1 || p.dim() > 2 || !at::isFloatingType(p.scalar_type()) ||
      p.size(-1) == 0)
    decline("several samples");
  (void)replacement;
  Tensor valid = at::logical_and(at::ge(p, 0), at::lt(p, INFINITY)).all();
  TORCH_CHECK(valid.item<bool>(), "probability tensor contains either `inf`, `nan` or element < 0");
  TORCH_CHECK(at::gt(p.sum(-1), 0).all().item<bool>(),
              "invalid multinomial distribution (sum of probabilities <= 0)");
  Tensor wait = make_tensor(p.sizes(), at::kFloat, p.device());
  exponential_(wait, 1, generator);
  return at::argmax(at::div(p, wait.clamp_min_(1e-20)), -1, true);
}

std::tuple<Tensor, Tensor> native_dropout(const Tensor& x, double p, optional<bool> train) {
  if (train.has_value() && !*train)
    return {x.clone(), at::ones(x.sizes(), x.options().dtype(at::kBool))};
  Call call(HY_OP_dropout, x.device());
  call.in(x);
  Draw place = draw(std::nullopt, x.get_device(), x.numel());
  call.attrs().dropout = {place.seed, place.offset, p};
  Tensor out = call.make(), mask = call.make();
  if (out.numel() > 0) call.run();
  return {out, mask};
}
Tensor native_dropout_backward(const Tensor& dy, const Tensor& mask, double scale) {
  return at::mul(at::mul(dy, mask), scale);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  NATIVE(uniform_, uniform_);
  NATIVE(normal_, normal_);
  NATIVE(bernoulli__float, bernoulli_);
  NATIVE(bernoulli__Tensor, bernoulli_tensor_);
  NATIVE(random__from, random_from_);
  NATIVE(random__to, random_to_);
  NATIVE(exponential_, exponential_);
  NATIVE(multinomial, multinomial);
  NATIVE(native_dropout, native_dropout);
  NATIVE(native_dropout_backward, native_dropout_backward);
}

}  // namespace
}  // namespace halyard_torch
