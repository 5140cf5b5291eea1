// The official client against a running server: node client_test.js BASE_URL MODEL
//
// Every function below is a test; each throws where the answer is not what the API promises.
import assert from 'node:assert/strict';
import OpenAI from 'openai';

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({baseURL, apiKey: 'none', maxRetries: 0});
const greedy = {model, temperature: 0};

const weather = {
  type: 'function',
  function: {
    name: 'get_weather',
    description: 'The weather of a city.',
    parameters: {
      type: 'object',
      properties: {
        city: {type: 'string', maxLength: 12},
        days: {type: 'integer', minimum: 1, maximum: 9},
      },
      required: ['city', 'days'],
      additionalProperties: false,
    },
  },
};

function ask(content, more = {}) {
  return {...greedy, max_tokens: 24, messages: [{role: 'user', content}], ...more};
}

async function listsModels() {
  const list = await client.models.list();
  assert.deepEqual(list.data.map((entry) => entry.id), [model]);
  assert.equal((await client.models.retrieve(model)).id, model);
}

async function streamsWhatItAnswersAsAWhole() {
  const whole = await client.chat.completions.create(ask('Tell me a story.'));
  assert.equal(whole.choices[0].message.role, 'assistant');
  assert.ok(whole.choices[0].message.content.length > 0);
  const stream = await client.chat.completions.create(
      ask('Tell me a story.', {stream: true, stream_options: {include_usage: true}}));
  let text = '';
  let usage = null;
  let finish = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta?.content ?? '';
    finish = chunk.choices[0]?.finish_reason ?? finish;
    usage = chunk.usage ?? usage;
  }
  // A reused prompt is computed in other steps, which may tip a near-tie later on.
  assert.equal(text.slice(0, 12), whole.choices[0].message.content.slice(0, 12));
  assert.equal(finish, 'length');
  assert.equal(usage.completion_tokens, 24);
  assert.equal(usage.total_tokens, usage.prompt_tokens + 24);
}

async function accumulatesWithTheStreamHelper() {
  const runner = client.beta.chat.completions.stream(ask('Hello there.'));
  let deltas = '';
  runner.on('content', (delta) => { deltas += delta; });
  const completion = await runner.finalChatCompletion();
  assert.equal(completion.choices[0].message.content, deltas);
}

async function callsTools() {
  const body = ask('What is the weather in Paris?', {
    max_tokens: 200, tools: [weather],
    tool_choice: {type: 'function', function: {name: 'get_weather'}}, parallel_tool_calls: false,
  });
  const whole = await client.chat.completions.create(body);
  assert.equal(whole.choices[0].finish_reason, 'tool_calls');
  const [call] = whole.choices[0].message.tool_calls;
  assert.equal(call.function.name, 'get_weather');
  const args = JSON.parse(call.function.arguments);
  assert.equal(typeof args.city, 'string');
  assert.ok(Number.isInteger(args.days) && args.days >= 1 && args.days <= 9);

  const runner = client.beta.chat.completions.stream(body);
  let deltas = 0;
  runner.on('tool_calls.function.arguments.delta', () => { ++deltas; });
  const streamed = (await runner.finalChatCompletion()).choices[0].message.tool_calls;
  assert.equal(streamed.length, 1);
  assert.ok(deltas > 3, 'arguments arrive as they are written');
  assert.deepEqual(Object.keys(JSON.parse(streamed[0].function.arguments)), ['city', 'days']);
}

async function limitsReasoning() {
  const reply = await client.chat.completions.create(
      ask('Think about ships.', {reasoning_effort: 'low', max_reasoning_tokens: 0}));
  assert.equal(reply.usage.completion_tokens_details.reasoning_tokens, 0);
  await assert.rejects(
      client.chat.completions.create(ask('Hi.', {max_reasoning_tokens: -1})),
      (error) => error.status === 400 && error.param === 'max_reasoning_tokens');
}

async function keepsToSchemas() {
  const schema = {
    type: 'object',
    properties: {
      name: {type: 'string', maxLength: 10},
      tags: {type: 'array', items: {enum: ['small', 'big', 'old']}, minItems: 1, maxItems: 3},
      parent: {anyOf: [{type: 'null'}, {$ref: '#/$defs/animal'}]},
    },
    required: ['name', 'tags', 'parent'],
    additionalProperties: false,
    $defs: {
      animal: {
        type: 'object',
        properties: {legs: {type: 'integer', minimum: 0, maximum: 8}},
        required: ['legs'],
        additionalProperties: false,
      },
    },
  };
  const reply = await client.beta.chat.completions.parse(ask('Describe a cat.', {
    max_tokens: 200,
    response_format: {type: 'json_schema', json_schema: {name: 'animal', strict: true, schema}},
  }));
  const animal = JSON.parse(reply.choices[0].message.content);
  assert.deepEqual(Object.keys(animal), ['name', 'tags', 'parent']);
  assert.ok(animal.tags.length >= 1 && animal.tags.length <= 3);

  const object = await client.chat.completions.create(
      ask('Describe a cat.', {max_tokens: 100, response_format: {type: 'json_object'}}));
  assert.equal(typeof JSON.parse(object.choices[0].message.content), 'object');
}

async function reportsLogprobs() {
  const reply = await client.chat.completions.create(
      ask('Hello.', {max_tokens: 5, logprobs: true, top_logprobs: 4}));
  const {content} = reply.choices[0].logprobs;
  assert.equal(content.length, reply.usage.completion_tokens);
  for (const token of content) {
    assert.equal(token.top_logprobs.length, 4);
    assert.ok(token.logprob <= 0);
    assert.ok(token.bytes.every((byte) => byte >= 0 && byte < 256));
  }
}

async function abortsStreamsAndAnswers() {
  // Without the tokens that end a reply.
  const endless = {max_tokens: 3000, logit_bias: {1: -100, 50: -100, 106: -100}};
  const stream = await client.chat.completions.create(
      ask('Tell me a long story.', {...endless, stream: true}));
  let chunks = 0;
  for await (const chunk of stream) {
    assert.ok(chunk.id.startsWith('chatcmpl-'));
    if (++chunks === 3) stream.controller.abort();
  }
  const abort = new AbortController();
  const pending = client.chat.completions.create(
      ask('Tell me a long story.', endless), {signal: abort.signal});
  setTimeout(() => abort.abort(), 50);
  await assert.rejects(pending, OpenAI.APIUserAbortError);
  // Both have been given up: the next one need not wait for them.
  await client.chat.completions.create(ask('Hi.', {max_tokens: 1}));
}

async function throwsTypedErrors() {
  const refused = async (body, type, code, param) => {
    const error = await client.chat.completions.create(body).then(
        () => assert.fail(`accepted: ${JSON.stringify(body)}`), (thrown) => thrown);
    assert.ok(error instanceof type, error.constructor.name);
    assert.equal(error.code, code);
    if (param !== undefined) assert.equal(error.param, param);
  };
  await refused(ask('x', {model: 'other'}), OpenAI.NotFoundError, 'model_not_found', 'model');
  await refused(ask('x', {temperature: 3}), OpenAI.BadRequestError, 'invalid_value',
                'temperature');
  await refused(ask('x', {n: 2}), OpenAI.BadRequestError, 'unsupported_value', 'n');
  await refused(ask('word '.repeat(100000)), OpenAI.BadRequestError, 'context_length_exceeded');
  await refused({...greedy, messages: [{role: 'user', content: [
                  {type: 'image_url', image_url: {url: 'data:,'}}]}]},
                OpenAI.BadRequestError, 'unsupported_content');
  await refused(ask('x', {response_format: {type: 'json_schema',
                                            json_schema: {name: 'n', schema: {not: {}}}}}),
                OpenAI.BadRequestError, 'unsupported_value');
}

async function completesText() {
  const body = {...greedy, prompt: 'Once upon a time', max_tokens: 8};
  const whole = await client.completions.create(body);
  assert.ok(whole.choices[0].text.length > 0);
  const stream = await client.completions.create({...body, stream: true});
  let text = '';
  for await (const chunk of stream) text += chunk.choices[0].text;
  assert.equal(text.slice(0, 8), whole.choices[0].text.slice(0, 8));
}

// What a coding agent does: a long system prompt, tools, and a conversation that is sent whole
// every time and grows by a call and its result. The recorded turns are replayed; the model's own
// calls are forced.
async function carriesAnAgentsConversation() {
  const read = {
    type: 'function',
    function: {
      name: 'read_file', description: 'Reads a file.',
      parameters: {type: 'object', properties: {path: {enum: ['a.txt', 'b.txt']}},
                   required: ['path'], additionalProperties: false},
    },
  };
  const messages = [
    {role: 'system', content: 'You are a careful assistant. ' + 'Work step by step. '.repeat(20)},
    {role: 'user', content: 'Look at the files and say what they hold.'},
  ];
  let cached = 0;
  for (let round = 0; round < 5; ++round) {
    const stream = client.beta.chat.completions.stream({
      ...greedy, messages, tools: [read, weather], max_tokens: 100, parallel_tool_calls: false,
      tool_choice: {type: 'function', function: {name: 'read_file'}},
      stream_options: {include_usage: true},
    });
    const completion = await stream.finalChatCompletion();
    const {message, finish_reason: finish} = completion.choices[0];
    assert.equal(finish, 'tool_calls');
    const now = completion.usage.prompt_tokens_details.cached_tokens;
    if (round > 0) assert.ok(now > cached, `round ${round}: ${now} after ${cached}`);
    cached = now;
    messages.push({role: 'assistant', content: message.content, tool_calls: message.tool_calls});
    for (const call of message.tool_calls) {
      const {path} = JSON.parse(call.function.arguments);
      messages.push({role: 'tool', tool_call_id: call.id, content: `${path} holds line ${round}`});
    }
  }
  const last = await client.chat.completions.create(
      {...greedy, messages, tools: [read, weather], tool_choice: 'none', max_tokens: 16});
  assert.ok(last.choices[0].message.content.length > 0);
  messages.push(last.choices[0].message, {role: 'user', content: 'Thank you. And now?'});
  const next = await client.chat.completions.create(
      {...greedy, messages, tools: [read, weather], tool_choice: 'none', max_tokens: 4});
  assert.ok(next.usage.prompt_tokens_details.cached_tokens >=
            last.usage.prompt_tokens + last.usage.completion_tokens - 1);
}

const tests = [
  listsModels, streamsWhatItAnswersAsAWhole, accumulatesWithTheStreamHelper, callsTools,
  limitsReasoning, keepsToSchemas, reportsLogprobs, abortsStreamsAndAnswers, throwsTypedErrors, completesText,
  carriesAnAgentsConversation,
];
let failed = 0;
for (const test of tests) {
  try {
    await test();
    console.log(`ok ${test.name}`);
  } catch (error) {
    ++failed;
    console.log(`FAILED ${test.name}`);
    console.log(error);
  }
}
process.exit(failed === 0 ? 0 : 1);
